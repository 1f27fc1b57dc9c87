#include "data/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace trireme {
namespace {

constexpr uint64_t kPeriodMax = uint64_t{1} << 20;  // 6 MB of tables

// Weights that are decimals of up to six digits, as the smallest integers in the same proportion.
// Empty: they are none, or their sum is above kPeriodMax.
std::vector<uint64_t> exact_counts(std::span<const double> weights) {
  for (double scale = 1; scale <= 1e6; scale *= 10) {
    std::vector<uint64_t> counts;
    for (const double weight : weights) {
      const double scaled = weight * scale, whole = std::round(scaled);
      if (whole < 1 || whole > 0x1p52 || std::abs(scaled - whole) > 1e-9 * whole) break;
      counts.push_back(static_cast<uint64_t>(whole));
    }
    if (counts.size() < weights.size()) continue;
    uint64_t divisor = 0, sum = 0;
    for (const uint64_t count : counts) divisor = std::gcd(divisor, count);
    for (uint64_t& count : counts) {
      count /= divisor;
      if (count > kPeriodMax || (sum += count) > kPeriodMax) return {};
    }
    return counts;
  }
  return {};
}

// kPeriodMax places by largest remainder, at least one for each source.
std::vector<uint64_t> rounded_counts(std::span<const double> weights) {
  double largest = 0, sum = 0;
  for (const double weight : weights) largest = std::max(largest, weight);
  for (const double weight : weights) sum += weight / largest;
  std::vector<uint64_t> counts;
  std::vector<std::pair<double, size_t>> remainders;
  uint64_t given = 0;
  const auto free = static_cast<double>(kPeriodMax - weights.size());
  for (size_t k = 0; k < weights.size(); ++k) {
    const double share = weights[k] / largest / sum * free;
    counts.push_back(1 + static_cast<uint64_t>(share));
    remainders.emplace_back(share - std::floor(share), k);
    given += counts.back();
  }
  std::sort(remainders.begin(), remainders.end(), std::greater<>());
  for (size_t i = 0; given < kPeriodMax; i = (i + 1) % remainders.size(), ++given)
    ++counts[remainders[i].second];
  return counts;
}

}  // namespace

Blend::Blend(std::span<const double> weights) {
  TRIREME_CHECK(!weights.empty() && weights.size() <= UINT16_MAX,
                "blend: expected 1 to 65535 weights, got ", weights.size());
  for (const double weight : weights)
    TRIREME_CHECK(std::isfinite(weight) && weight > 0, "blend: a weight must be above 0, got ",
                  weight);
  counts_ = exact_counts(weights);
  if (counts_.empty()) counts_ = rounded_counts(weights);

  const auto sources = static_cast<int64_t>(counts_.size());
  const auto period =
      static_cast<int64_t>(std::accumulate(counts_.begin(), counts_.end(), uint64_t{0}));
  // Tijdeman's rule, everything multiplied by P (2K - 2): among the sources that are behind by at
  // least 1 / (2K - 2) of a place, the one that would be too far behind first.
  const int64_t parts = std::max<int64_t>(2 * sources - 2, 1);
  std::vector<int64_t> had(counts_.size(), 0);
  for (int64_t n = 1; n <= period; ++n) {
    size_t chosen = counts_.size();
    __int128 chosen_slack = 0;
    for (size_t k = 0; k < counts_.size(); ++k) {
      const auto count = static_cast<int64_t>(counts_[k]);
      const int64_t behind = parts * (count * n - period * had[k]);
      if (behind < period) continue;
      const __int128 slack = period * (parts - 1) - behind;
      if (chosen == counts_.size() ||
          slack * static_cast<int64_t>(counts_[chosen]) < chosen_slack * count)
        chosen = k, chosen_slack = slack;
    }
    TRIREME_ASSERT(chosen < counts_.size(), "no source is due at place ", n);
    sources_.push_back(static_cast<uint16_t>(chosen));
    before_.push_back(static_cast<uint32_t>(had[chosen]++));
  }
}

Blend::Place Blend::operator()(uint64_t index) const {
  const uint64_t place = index % period(), source = sources_[place];
  return {source, index / period() * counts_[source] + before_[place]};
}

}  // namespace trireme
