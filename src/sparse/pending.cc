#include "sparse/pending.h"

#include "sparse/mix.h"

namespace trireme {

PendingGradients::PendingGradients(int64_t dim) : dim_(static_cast<size_t>(dim)) { clear(); }

void PendingGradients::clear() {
  rows_.assign(1, kNoRow);
  sums_.assign(dim_, 0);
  numbers_.reset(0);
}

std::span<const uint32_t> PendingGradients::slots_of(std::span<const uint32_t> rows) {
  slots_.resize(rows.size());
  if (empty()) {  // the common case, one push a step: distinct rows need no set
    for (size_t i = 0; i < rows.size(); ++i) {
      slots_[i] = rows[i] == kNoRow ? 0 : end();
      if (rows[i] != kNoRow) rows_.push_back(rows[i]);
    }
  } else {
    numbers_.reserve(rows_.size() + rows.size());
    for (uint32_t slot = numbers_.size(); slot < end(); ++slot)
      numbers_.number_of(rows_[slot], mix64(rows_[slot]));
    for (size_t i = 0; i < rows.size(); ++i) {
      slots_[i] = numbers_.number_of(rows[i], mix64(rows[i]));
      if (slots_[i] == end()) rows_.push_back(rows[i]);
    }
  }
  sums_.resize(rows_.size() * dim_, 0);
  return slots_;
}

}  // namespace trireme
