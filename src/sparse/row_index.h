// Hashed key -> row number, for one part of a table.
//
//   directory (top bits of the hash) -> segment -> page of 4 KiB -> bucket of 64 bytes
//
// A bucket has 12 tags of 8 bits (the low byte of the hash, never 0, which means "empty") and 12
// row numbers; the key itself stands only in the record, which the caller touches anyway, so no key
// is reserved. A full bucket is marked and the search goes on in the next one of the segment. A
// segment grows page by page, and from 8 pages splits in two of 5: growth moves a few thousand
// numbers and never the whole index. Each segment grows at a load of its own, so that not all grow
// in one step.
//
// Cost:     under 16 bytes a key, the key's own 8 included, above some 100,000 keys.
// Threads:  one, or many that only find.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "sparse/row_store.h"

namespace trireme {

struct alignas(64) IndexBucket {
  static constexpr int kSlots = 12;
  uint8_t tags[kSlots];
  uint8_t overflowed;  // something that belongs here lies further on
  uint8_t spare[3];
  uint32_t rows[kSlots];
};
static_assert(sizeof(IndexBucket) == 64);

// Bit i: tags[i] == tag. The plain form runs anywhere; tag_matches() is the fastest there is here.
uint32_t tag_matches_plain(const IndexBucket& bucket, uint8_t tag);
uint32_t tag_matches(const IndexBucket& bucket, uint8_t tag);

class RowIndex {
 public:
  // For the keys whose hash, mix64(key ^ salt), has `part` as its top `part_bits` bits. `store`
  // holds the records and outlives the index.
  RowIndex(const RowStore& store, uint64_t salt, int part_bits, uint64_t part);
  RowIndex(const RowIndex&) = delete;
  RowIndex& operator=(const RowIndex&) = delete;

  uint32_t find(int64_t key, uint64_t hash) const;  // kNoRow: absent
  // The same for many keys, with loads of several keys in flight. The records are then in cache.
  void find_all(std::span<const int64_t> keys, std::span<const uint64_t> hashes,
                std::span<uint32_t> rows) const;

  // RunError if thousands of keys were made to collide.
  void insert(uint64_t hash, uint32_t row);    // REQUIRES: its key is absent, its header filled
  uint32_t erase(int64_t key, uint64_t hash);  // the row that it was, or kNoRow

  int64_t size() const { return size_; }
  int64_t bytes() const;       // of all memory taken
  int64_t used_bytes() const;  // without pages that wait to be used

 private:
  static constexpr int kPageBuckets = 64;  // 4 KiB
  static constexpr int kMaxPages = 8;

  struct Segment {
    uint32_t buckets, used, limit, erased;  // limit: grow before `used` exceeds it
    uint32_t depth;                         // bits of the directory that lead here
    std::array<IndexBucket*, kMaxPages> pages;
  };

  uint64_t path_of(uint64_t hash) const { return hash << part_bits_; }
  uint32_t segment_of(uint64_t hash) const {
    return directory_[depth_ == 0 ? 0 : path_of(hash) >> (64 - depth_)];
  }
  static uint8_t tag_of(uint64_t hash) {
    const auto low = static_cast<uint8_t>(hash);
    return low + (low == 0);
  }
  uint32_t home_of(const Segment& segment, uint64_t hash) const {
    const uint64_t below = path_of(hash) << segment.depth >> 32;
    return static_cast<uint32_t>(below * segment.buckets >> 32);
  }
  static IndexBucket& bucket_of(const Segment& segment, uint32_t bucket) {
    return segment.pages[bucket / kPageBuckets][bucket % kPageBuckets];
  }

  Segment make_segment(int pages, uint32_t depth, uint64_t hash);
  void place(Segment& segment, uint64_t hash, uint32_t row);
  void make_room(uint64_t hash);
  void split(uint32_t segment, std::span<const uint32_t> rows, std::span<const uint64_t> hashes);
  IndexBucket* take_page();

  const RowStore& store_;
  const uint64_t salt_;
  const int part_bits_;
  uint32_t depth_ = 0;  // the directory has 2^depth_ entries
  std::vector<uint32_t> directory_;
  std::vector<Segment> segments_;
  int64_t size_ = 0;

  std::vector<RowMemory> blocks_;  // of pages; each twice the one before, up to 2 MiB
  std::vector<IndexBucket*> free_pages_;
  int64_t pages_ = 0;
};

}  // namespace trireme
