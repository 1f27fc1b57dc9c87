// A set of keys, numbered: the scratch that tells the distinct keys of a batch apart.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

// Numbers distinct keys 0, 1, 2, … in the order in which they first come.
class KeyNumbers {
 public:
  // Forgets all keys and makes room for `keys` distinct ones.
  void reset(size_t keys);
  // Makes room for `keys` distinct ones in all and keeps what is known.
  void reserve(size_t keys);
  // The key's number. `hash` is a good hash of it; bits 8 and up choose the slot. REQUIRES: room.
  uint32_t number_of(int64_t key, uint64_t hash) {
    // A new key stands at the end of the list already when its empty slot is met, so that known and
    // new keys take the same path, without a branch to mispredict.
    keys_[size_] = key;
    hashes_[size_] = hash;
    for (size_t slot = hash >> 8 & mask_;; slot = (slot + 1) & mask_) {
      const uint32_t value = slots_[slot];
      const uint32_t empty = -static_cast<uint32_t>(value == 0);
      const uint32_t number = ((value - 1) & ~empty) | (size_ & empty);
      if (keys_[number] != key) continue;
      slots_[slot] = number + 1;
      size_ += empty & 1;
      return number;
    }
  }
  uint32_t size() const { return size_; }
  std::span<const int64_t> keys() const { return {keys_.data(), size_}; }
  std::span<const uint64_t> hashes() const { return {hashes_.data(), size_}; }

 private:
  std::vector<uint32_t> slots_;  // 0: empty; else a number + 1
  std::vector<int64_t> keys_;
  std::vector<uint64_t> hashes_;
  uint64_t mask_ = 0;
  uint32_t size_ = 0;
};

}  // namespace trireme
