// What one part of a row table owns. Private to row_table*.cc.
#pragma once

#include <unordered_map>
#include <vector>

#include "sparse/pending.h"
#include "sparse/row_index.h"
#include "sparse/row_table.h"

namespace trireme {

struct RowTable::Part {
  Part(const RowStore& store, uint64_t salt, int part_bits, uint64_t number, int64_t dim)
      : index(store, salt, part_bits, number), pending(dim) {}

  RowIndex index;
  PendingGradients pending;
  std::unordered_map<int64_t, RowVersion> tombstones;
  std::vector<uint32_t> chunks;     // first rows, in the order in which they were taken
  std::vector<uint32_t> free_rows;  // of erased keys
  uint32_t next_row = 0, rows_left_in_chunk = 0;  // of the last chunk
  int64_t inserted = 0, erased = 0;
};

}  // namespace trireme
