#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace trireme {

void check(const SamplingOptions& o) {
  TRIREME_CHECK(o.temperature >= 0 && std::isfinite(o.temperature),
                "temperature must be 0 or more, got ", o.temperature);
  TRIREME_CHECK(o.top_k >= 0, "top-k must be 0 (off) or more, got ", o.top_k);
  TRIREME_CHECK(o.top_p > 0 && o.top_p <= 1, "top-p must be above 0 and at most 1, got ", o.top_p);
  TRIREME_CHECK(o.min_p >= 0 && o.min_p <= 1, "min-p must be between 0 and 1, got ", o.min_p);
}

std::vector<double> sampling_distribution(const at::Tensor& logits,
                                          const SamplingOptions& options) {
  TRIREME_ASSERT(logits.dim() == 1);
  const at::Tensor wide = logits.to(at::kDouble).contiguous();
  std::vector<double> p(wide.const_data_ptr<double>(),
                        wide.const_data_ptr<double>() + wide.numel());
  const size_t best = static_cast<size_t>(std::ranges::max_element(p) - p.begin());
  const double top = p[best];
  if (!std::isfinite(top) || std::ranges::any_of(p, [](double x) { return std::isnan(x); }))
    throw RunError("cannot sample: the logits are not finite");
  if (options.temperature == 0) {
    std::ranges::fill(p, 0);
    p[best] = 1;
    return p;
  }
  for (double& x : p) x = std::exp((x - top) / options.temperature);

  // From here on, places in falling order of probability; what is filtered out gets 0.
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return p[a] > p[b]; });
  size_t kept = order.size();
  if (options.top_k > 0) kept = std::min(kept, static_cast<size_t>(options.top_k));
  const auto mass = [&] {
    double sum = 0;
    for (size_t i = 0; i < kept; ++i) sum += p[order[i]];
    return sum;
  };
  if (options.top_p < 1) {
    const double wanted = options.top_p * mass();
    double sum = 0;
    size_t n = 0;
    while (n < kept && sum < wanted) sum += p[order[n++]];
    kept = std::max<size_t>(n, 1);
  }
  if (options.min_p > 0)
    while (kept > 1 && p[order[kept - 1]] < options.min_p * p[order[0]]) --kept;
  const double total = mass();
  for (size_t i = 0; i < order.size(); ++i) p[order[i]] = i < kept ? p[order[i]] / total : 0;
  return p;
}

int32_t sample(const at::Tensor& logits, const SamplingOptions& options, uint64_t sequence,
               uint64_t place) {
  const std::vector<double> p = sampling_distribution(logits, options);
  const double u = RandomStream(options.seed, "sample", sequence).uniform(place);
  double sum = 0;
  int32_t last = 0;
  for (size_t id = 0; id < p.size(); ++id) {
    if (p[id] == 0) continue;
    last = static_cast<int32_t>(id);
    sum += p[id];
    if (u < sum) break;
  }
  return last;
}

}  // namespace trireme
