// Metrics of predicted click probabilities, by their exact definitions.
//
// With n samples, labels y in {0, 1}, probabilities p, base rate b = mean(y):
//   AUC                  the probability that a click is scored above a non-click, ties counting
//   one half log-loss             -mean(y ln p + (1 - y) ln(1 - p)) normalized entropy   log-loss /
//   entropy of b: below 1 is better than always saying b
//                        (He et al., "Practical lessons from predicting clicks on ads at Facebook",
//                        2014)
//   calibration          sum(p) / sum(y)
// What is not defined, such as the AUC of one class, is NaN. Memory: 9 bytes a sample. One thread.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

class ClickMetrics {
 public:
  // InputError unless 0 <= probability <= 1.
  void add(double probability, bool clicked);
  void merge(const ClickMetrics& other);

  int64_t samples() const { return static_cast<int64_t>(probabilities_.size()); }
  double auc() const;  // sorts: n log n
  double log_loss() const;
  double normalized_entropy() const;
  double calibration() const;

 private:
  std::vector<double> probabilities_;
  std::vector<bool> clicks_;
  double clicked_ = 0, predicted_ = 0, nats_ = 0;
};

}  // namespace trireme
