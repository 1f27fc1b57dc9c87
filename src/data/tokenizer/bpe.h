// Byte-pair encoding of one word: neighbours are merged, always the pair that stands first in the
// list of merges, and of equal ones the leftmost, until no neighbours are in the list.
//
// A word is cut into symbols in one of two ways:
//   bytes       each byte is a symbol (byte-level models; all 256 bytes are tokens);
//   characters  each character is a symbol; one that is no token becomes its bytes as "<0x..>"
//   tokens
//               (byte fallback), else the unknown token, else nothing.
//
// Threads: immutable, any thread; each thread brings a BpeScratch.
// Cost:    a word of up to 31 bytes that was met lately: a few ns. Else a table look-up per symbol
//          and merge; long words are cut where no token reaches across, and what is left takes
//          O(n log n).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/tokenizer/word_cache.h"

namespace trireme {

// From a pair of neighbours to the place in the list of merges and the id that replaces them.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;  // kNone: no merge
    int32_t id;
  };
  static constexpr uint32_t kNone = 0xFFFFFFFF;

  void reserve(size_t merges);
  void set(int32_t left, int32_t right, Merge merge);  // replaces
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key = ~uint64_t{0};
    Merge merge{kNone, -1};
  };
  size_t place(uint64_t key) const { return key * 0x9E3779B97F4A7C15 >> shift_; }

  std::vector<Slot> slots_ = std::vector<Slot>(2);  // a power of two, at most half full
  int shift_ = 63;
};

struct BpeScratch {
  struct Symbol {
    int32_t id, previous, next;  // -1: none
  };
  struct Candidate {
    uint32_t rank;
    int32_t place, left, right;
    // For a heap whose top is the first to be merged.
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : place > other.place;
    }
  };
  ShortWords short_words;
  LongWords long_words;
  std::vector<int32_t> ids;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

class Bpe {
 public:
  struct Options {
    bool bytes = true;           // symbols are bytes, not characters
    bool ignore_merges = false;  // a word that is a token is that token, merges or not
    bool byte_fallback = false;
    std::optional<int32_t> unknown;
    bool fuse_unknown = false;  // neighbouring unknown characters are one unknown token
  };
  struct Pair {
    int32_t left, right, id;
  };

  // `tokens[id]` is the text of a token, nullopt where no text can be that token; `merges` in their
  // order. REQUIRES: with options.bytes, each byte is a token.
  Bpe(std::span<const std::optional<std::string_view>> tokens, std::span<const Pair> merges,
      const Options& options);

  void encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;

 private:
  template <class Cache>
  void encode_cached(Cache& cache, std::string_view word, BpeScratch& scratch,
                     std::vector<int32_t>& out) const;
  void encode_long(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void encode_uncached(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void to_symbols(std::string_view word, std::vector<int32_t>& ids) const;
  void to_fallback(std::string_view character, std::optional<int32_t>& unknown,
                   std::vector<int32_t>& ids) const;
  int32_t character_id(std::string_view character) const;  // -1: no token
  void merge_few(std::vector<int32_t>& ids) const;
  void merge_many(BpeScratch& scratch) const;
  void remember_neighbours(std::string_view token);
  bool joined(uint32_t left, uint32_t right) const;

  Options options_;
  MergeTable merges_;
  std::vector<int32_t> byte_ids_ = std::vector<int32_t>(256, -1);  // of single bytes or ASCII
  std::unordered_map<std::string, int32_t> character_ids_;         // beyond ASCII
  std::vector<int32_t> fallback_ids_ = std::vector<int32_t>(256, -1);
  std::unordered_map<std::string, int32_t> whole_words_;  // for ignore_merges
  // Hashes of the neighbours (bytes or characters) that stand side by side in some token.
  std::vector<bool> neighbours_;
};

}  // namespace trireme
