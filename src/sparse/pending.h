// Gradients that were pushed to one part of a table and wait for its update, summed by row.
//
// Several pushes (micro-batches, ranks) add to the same sums in the order in which they come, so
// that a batch pushed in pieces sums as the whole does.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sparse/key_numbers.h"
#include "sparse/row_store.h"

namespace trireme {

class PendingGradients {
 public:
  explicit PendingGradients(int64_t dim);

  // The slot of the sum of each of these distinct rows; new ones start at 0. What is added for
  // kNoRow goes to slot 0, which nobody reads. The span lives until the next call.
  std::span<const uint32_t> slots_of(std::span<const uint32_t> rows);

  float* sum(uint32_t slot) { return &sums_[static_cast<size_t>(slot) * dim_]; }
  const float* sum(uint32_t slot) const { return &sums_[static_cast<size_t>(slot) * dim_]; }
  uint32_t begin() const { return 1; }  // the slots of rows are [begin, end)
  uint32_t end() const { return static_cast<uint32_t>(rows_.size()); }
  uint32_t row(uint32_t slot) const { return rows_[slot]; }
  bool empty() const { return end() == begin(); }
  void clear();

 private:
  const size_t dim_;
  std::vector<uint32_t> rows_;   // by slot
  std::vector<float> sums_;      // [slots, D]
  std::vector<uint32_t> slots_;  // of the rows of the present push
  KeyNumbers numbers_;           // row -> slot, from the second push on
};

}  // namespace trireme
