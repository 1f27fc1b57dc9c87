// One batch of ids, resolved: which positions carry the same key, and which row each key has.
//
// A lookup is made by a pull and read by the push of the same batch, so that keys are hashed, told
// apart and found once. It is reusable scratch: the next pull into it overwrites it and keeps its
// memory.
//
// Words:    position - place in the batch; unique - one distinct key of the batch, numbered within
// its part in
//           the order of first occurrence.
// Threads:  one owner. Results do not depend on the number of threads that filled it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "sparse/key_numbers.h"
#include "sparse/row_store.h"

namespace trireme {

class RowLookup {
 public:
  int64_t size() const { return static_cast<int64_t>(unique_at_.size()); }
  int64_t unique_keys() const;  // distinct keys of the batch

  // The row at a position, kNoRow if its key has none.
  uint32_t row_at(int64_t position) const { return rows_[unique_at_[position]]; }

 private:
  friend class RowTable;

  // The part of one batch that belongs to one part of the table: uniques live in [begin, begin +
  // uniques).
  struct Part {
    uint32_t begin = 0, end = 0;  // in positions_
    uint32_t uniques = 0;
  };
  struct Scratch {  // one a thread
    KeyNumbers numbers;
    std::vector<uint32_t> counts;
  };

  // Sorts the positions into 2^part_bits parts, each in rising order. REQUIRES: threads > 0.
  void partition(std::span<const int64_t> ids, uint64_t salt, int part_bits, int threads);
  // Tells the keys of one part apart. Returns them with their hashes, and how often each occurs in
  // `scratch.counts`.
  const KeyNumbers& number_keys(int64_t part, uint64_t salt, Scratch& scratch);

  uint32_t position(uint32_t place) const { return parts_.size() == 1 ? place : positions_[place]; }
  std::span<uint32_t> rows_of(const Part& part) {
    return {rows_.data() + part.begin, part.uniques};
  }
  std::span<const uint32_t> rows_of(const Part& part) const {
    return {rows_.data() + part.begin, part.uniques};
  }

  std::span<const int64_t> ids_;  // of the pull that is going on
  std::vector<Part> parts_;
  std::vector<uint32_t> positions_;  // grouped by part; not filled when there is one part
  std::vector<uint32_t> unique_at_;  // by position: begin of its part + number of its key there
  std::vector<uint32_t> rows_;       // by begin of part + number
  std::vector<uint32_t> histogram_;  // [stretch of the batch, part]
  std::vector<std::unique_ptr<Scratch>> scratch_;
  uint64_t structure_ = 0;  // of the table when this was made; see RowTable
  const void* table_ = nullptr;
  bool trained_ = false;
};

}  // namespace trireme
