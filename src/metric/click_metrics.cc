#include "metric/click_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace trireme {
namespace {

// A probability of exactly 0 or 1 that turns out wrong costs this much, not infinitely much.
constexpr double kLeastProbability = 1e-15;

double nats(double probability, bool clicked) {
  return -std::log(std::max(clicked ? probability : 1 - probability, kLeastProbability));
}

}  // namespace

void ClickMetrics::add(double probability, bool clicked) {
  TRIREME_CHECK(probability >= 0 && probability <= 1,
                "click metrics: a probability must be between 0 and 1, got ", probability);
  probabilities_.push_back(probability);
  clicks_.push_back(clicked);
  clicked_ += clicked;
  predicted_ += probability;
  nats_ += nats(probability, clicked);
}

void ClickMetrics::merge(const ClickMetrics& other) {
  probabilities_.insert(probabilities_.end(), other.probabilities_.begin(),
                        other.probabilities_.end());
  clicks_.insert(clicks_.end(), other.clicks_.begin(), other.clicks_.end());
  clicked_ += other.clicked_;
  predicted_ += other.predicted_;
  nats_ += other.nats_;
}

double ClickMetrics::auc() const {
  const double clicks = clicked_, others = static_cast<double>(samples()) - clicked_;
  if (clicks == 0 || others == 0) return std::numeric_limits<double>::quiet_NaN();
  std::vector<size_t> order(probabilities_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order,
                    [&](size_t a, size_t b) { return probabilities_[a] < probabilities_[b]; });
  // Groups of equal probability, rising: their clicks beat all earlier non-clicks and half of their
  // own.
  double wins = 0, others_below = 0;
  for (size_t begin = 0, end; begin < order.size(); begin = end) {
    double clicks_here = 0, others_here = 0;
    for (end = begin;
         end < order.size() && probabilities_[order[end]] == probabilities_[order[begin]]; ++end)
      (clicks_[order[end]] ? clicks_here : others_here) += 1;
    wins += clicks_here * (others_below + others_here / 2);
    others_below += others_here;
  }
  return wins / (clicks * others);
}

double ClickMetrics::log_loss() const { return nats_ / static_cast<double>(samples()); }

double ClickMetrics::normalized_entropy() const {
  const double base = clicked_ / static_cast<double>(samples());
  return log_loss() / -(base * std::log(base) + (1 - base) * std::log(1 - base));
}

double ClickMetrics::calibration() const { return predicted_ / clicked_; }

}  // namespace trireme
