#include "sparse/key_numbers.h"

#include <algorithm>
#include <bit>

namespace trireme {
namespace {

size_t slots_for(size_t keys) { return std::bit_ceil(std::max<size_t>(4 * keys, 64)); }

}  // namespace

void KeyNumbers::reset(size_t keys) {
  size_ = 0;
  slots_.clear();
  reserve(keys);
}

void KeyNumbers::reserve(size_t keys) {
  if (keys_.size() <= keys) {  // one more than keys: the candidate at the end
    keys_.resize(keys + 1);
    hashes_.resize(keys + 1);
  }
  if (slots_.size() >= slots_for(keys)) return;
  slots_.assign(slots_for(keys), 0);
  mask_ = slots_.size() - 1;
  for (uint32_t number = 0; number < size_; ++number) {
    size_t slot = hashes_[number] >> 8 & mask_;
    while (slots_[slot] != 0) slot = (slot + 1) & mask_;
    slots_[slot] = number + 1;
  }
}

}  // namespace trireme
