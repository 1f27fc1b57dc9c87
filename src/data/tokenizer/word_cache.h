// The ids of words that were met before: a word of up to 31 bytes with few ids is found in one
// cache line.
//
// Direct-mapped: a new word takes the place of the one that hashes alike. One thread.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace trireme {

// A word of up to kWords * 8 - 1 bytes as numbers: its bytes, zeros, and the length in the last
// byte. So two keys are equal exactly if the words are.
template <int kWords>
struct WordKey {
  std::array<uint64_t, kWords> part{};

  explicit WordKey(std::string_view word) {
    const char* p = word.data();
    size_t left = word.size();
    int i = 0;
    for (; left >= 8; left -= 8, p += 8) std::memcpy(&part[i++], p, 8);
    part[i] = load_tail(p, left);
    part[kWords - 1] |= static_cast<uint64_t>(word.size()) << 56;
  }
  // Without the call to memcmp that std::array's comparison makes.
  bool equals(const std::array<uint64_t, kWords>& other) const {
    uint64_t difference = 0;
    for (int i = 0; i < kWords; ++i) difference |= part[i] ^ other[i];
    return difference == 0;
  }

  uint64_t hash() const {
    uint64_t h = 0;
    for (const uint64_t p : part) h = std::rotl(h ^ p, 29) * 0x9E3779B97F4A7C15;
    return h ^ h >> 32;
  }

 private:
  // `left` < 8 bytes, zeros above them; never reads beyond the word.
  static uint64_t load_tail(const char* p, size_t left) {
    if (left >= 4) {
      uint32_t low, high;
      std::memcpy(&low, p, 4);
      std::memcpy(&high, p + left - 4, 4);
      return low | static_cast<uint64_t>(high) << (8 * (left - 4));
    }
    if (left == 0) return 0;
    const auto at = [&](size_t i) { return static_cast<uint64_t>(static_cast<uint8_t>(p[i])); };
    return at(0) | at(left / 2) << (8 * (left / 2)) | at(left - 1) << (8 * (left - 1));
  }
};

template <int kWords, int kIds, int kLog2Entries>
class WordCache {
 public:
  static constexpr size_t kLongest = kWords * 8 - 1;
  static constexpr size_t kMostIds = kIds;

  struct Entry {
    std::array<uint64_t, kWords> key{};  // all zero: empty, as no word is
    std::array<int32_t, kIds> ids;       // -1 after the last
  };

  Entry& entry(const WordKey<kWords>& key) {
    return entries_[key.hash() & ((size_t{1} << kLog2Entries) - 1)];
  }
  static void fill(Entry& entry, const WordKey<kWords>& key, std::span<const int32_t> ids) {
    entry.key = key.part;
    for (int i = 0; i < kIds; ++i) entry.ids[i] = i < static_cast<int>(ids.size()) ? ids[i] : -1;
  }

 private:
  std::unique_ptr<Entry[]> entries_ = std::make_unique<Entry[]>(size_t{1} << kLog2Entries);
};

using ShortWords = WordCache<2, 4, 16>;  // 2 MB
using LongWords = WordCache<4, 8, 14>;   // 1 MB

}  // namespace trireme
