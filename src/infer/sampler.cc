#include "infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace trireme {
namespace {

std::vector<double> to_vector(const at::Tensor& logits) {
  TRIREME_ASSERT(logits.dim() == 1);
  return {logits.const_data_ptr<double>(), logits.const_data_ptr<double>() + logits.numel()};
}

size_t best_of(const std::vector<double>& z) {
  const auto best = static_cast<size_t>(std::ranges::max_element(z) - z.begin());
  if (!std::isfinite(z[best]) || std::ranges::any_of(z, [](double x) { return std::isnan(x); }))
    throw RunError("cannot sample: the logits are not finite");
  return best;
}

void penalize(std::vector<double>& z, std::span<const int32_t> text, double penalty) {
  if (penalty == 1) return;
  std::vector<int32_t> seen(text.begin(), text.end());
  std::ranges::sort(seen);
  const auto repeated = std::ranges::unique(seen);
  seen.erase(repeated.begin(), repeated.end());
  for (int32_t id : seen) {
    double& x = z[static_cast<size_t>(id)];
    x = x < 0 ? x * penalty : x / penalty;
  }
}

// Probabilities, up to a factor, of what top-k leaves; 0 for the others.
void keep_top_k(std::vector<double>& p, int64_t k) {
  if (k == 0 || static_cast<size_t>(k) >= p.size()) return;
  std::vector<double> sorted = p;
  const auto last = sorted.begin() + (k - 1);
  std::ranges::nth_element(sorted, last, std::greater());
  const double least = *last;
  for (double& x : p)
    if (x < least) x = 0;
}

// Sorts in growing pieces: the tokens that reach p are mostly few.
void keep_top_p(std::vector<double>& p, double top_p) {
  if (top_p == 1) return;
  constexpr size_t kFirstPiece = 256;
  const double wanted = top_p * std::reduce(p.begin(), p.end());
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto greater = [&](size_t a, size_t b) { return p[a] != p[b] ? p[a] > p[b] : a < b; };
  double above = 0;
  size_t kept = 0;
  for (size_t begin = 0, piece = kFirstPiece; begin < order.size() && above < wanted; piece *= 4) {
    const size_t end = std::min(order.size(), begin + piece);
    std::partial_sort(order.begin() + static_cast<std::ptrdiff_t>(begin),
                      order.begin() + static_cast<std::ptrdiff_t>(end), order.end(), greater);
    for (begin = end; kept < end && above < wanted; ++kept) above += p[order[kept]];
  }
  for (size_t i = kept; i < order.size(); ++i) p[order[i]] = 0;
}

// Probabilities from logits that are penalised already; `best` has the greatest.
void filter(std::vector<double>& z, size_t best, const SamplingOptions& options) {
  const double top = z[best];
  // In place of exp(z / temperature) over their sum: the greatest is 1.
  for (double& x : z) x = std::exp((x - top) / options.temperature);
  keep_top_k(z, options.top_k);
  keep_top_p(z, options.top_p);
  for (double& x : z)
    if (x < options.min_p) x = 0;
  const double total = std::reduce(z.begin(), z.end());
  for (double& x : z) x /= total;
}

size_t draw(const std::vector<double>& p, double u) {
  double sum = 0;
  size_t last = 0;
  for (size_t id = 0; id < p.size(); ++id) {
    if (p[id] == 0) continue;
    last = id;
    sum += p[id];
    if (u < sum) break;
  }
  return last;
}

}  // namespace

void check(const SamplingOptions& o) {
  TRIREME_CHECK(o.temperature >= 0 && std::isfinite(o.temperature),
                "temperature must be 0 or more, got ", o.temperature);
  TRIREME_CHECK(o.top_k >= 0, "top-k must be 0 (off) or more, got ", o.top_k);
  TRIREME_CHECK(o.top_p > 0 && o.top_p <= 1, "top-p must be above 0 and at most 1, got ", o.top_p);
  TRIREME_CHECK(o.min_p >= 0 && o.min_p <= 1, "min-p must be between 0 and 1, got ", o.min_p);
  TRIREME_CHECK(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty),
                "repetition-penalty must be above 0 (1: off), got ", o.repetition_penalty);
}

std::vector<double> sampling_distribution(const at::Tensor& logits, std::span<const int32_t> text,
                                          const SamplingOptions& options) {
  std::vector<double> z = to_vector(logits.to(at::kDouble).contiguous());
  penalize(z, text, options.repetition_penalty);
  const size_t best = best_of(z);
  if (options.temperature > 0) {
    filter(z, best, options);
  } else {
    std::ranges::fill(z, 0);
    z[best] = 1;
  }
  return z;
}

SampledToken sample(const at::Tensor& logits, std::span<const int32_t> text,
                    const SamplingOptions& options, uint64_t sequence, uint64_t place) {
  const at::Tensor wide = logits.to(at::kDouble).contiguous();
  std::vector<double> z = to_vector(wide);
  penalize(z, text, options.repetition_penalty);
  size_t id = best_of(z);
  SampledToken token;
  if (options.temperature > 0) {
    filter(z, id, options);
    id = draw(z, RandomStream(options.seed, "sample", sequence).uniform(place));
    token.sampling_log_prob = std::log(z[id]);
  }
  token.id = static_cast<int32_t>(id);
  token.log_prob = wide.const_data_ptr<double>()[id] - wide.logsumexp(0).item<double>();
  return token;
}

}  // namespace trireme
