// Where the records of a table lie: slabs of rows, found by row number, that never move.
//
// A record is a header of 32 bytes and `floats` floats: weights first, then the optimizer's
// moments. Up to 8 floats, header and floats share one cache line of 64 bytes. Above, headers and
// floats are two planes of a slab, so that 16 floats are exactly one line and a scan of the headers
// reads nothing else.
//
// Threads:  header() and floats() of different rows from any thread; take_chunk() from any thread,
// if
//           reserve() was called before for as many rows. reserve() alone.
// Failure:  RunError when memory or row numbers (2^32 - 1) run out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

namespace trireme {

struct RowHeader {
  int64_t key = 0;
  int64_t touched = 0;   // greatest event time of a training pull
  uint32_t count = 0;    // occurrences in training pulls; stays at its greatest value
  uint32_t updates = 0;  // optimizer updates; stays at its greatest value
  uint32_t version = 0;  // commit that the last change belongs to; 0: no row lives here
  float row_moment = 0;  // the one moment that an optimizer may keep for the whole row
};
static_assert(sizeof(RowHeader) == 32);

constexpr uint32_t kNoRow = ~uint32_t{0};

struct FreeMemory {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using RowMemory = std::unique_ptr<std::byte[], FreeMemory>;

// Not initialised; aligned to 64 bytes, or to huge pages (and put on them where the system can)
// from 2 MiB on if `huge`. RunError when there is no memory.
RowMemory allocate_rows_memory(size_t bytes, bool huge);

class RowStore {
 public:
  static constexpr uint32_t kChunkRows = 256;

  explicit RowStore(int64_t floats);  // of one row
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  RowHeader& header(uint32_t row) const {
    return *reinterpret_cast<RowHeader*>(slabs_[row >> slab_bits_] + header_offset_ +
                                         (row & slab_mask_) * header_stride_);
  }
  float* floats(uint32_t row) const {
    return reinterpret_cast<float*>(slabs_[row >> slab_bits_] + floats_offset_ +
                                    (row & slab_mask_) * floats_stride_);
  }
  // Every line of the record.
  void prefetch(uint32_t row) const {
    const auto* floats = reinterpret_cast<const std::byte*>(this->floats(row));
    for (size_t line = 0; line < floats_stride_; line += 64) __builtin_prefetch(floats + line);
    __builtin_prefetch(floats + floats_stride_ - 1);
    __builtin_prefetch(&header(row));
  }

  // Room in the tables of slabs for `rows` more rows and a chunk begun by each of `takers`.
  void reserve(int64_t rows, int64_t takers);
  // The first of kChunkRows new rows, their versions 0.
  uint32_t take_chunk();

  int64_t record_bytes() const;    // of one row
  int64_t reserved_bytes() const;  // of all slabs, touched or not

 private:
  uint32_t take_rows();

  size_t header_stride_, floats_stride_, header_offset_, floats_offset_;
  int slab_bits_;
  uint32_t slab_mask_;
  std::mutex mutex_;
  uint64_t next_row_ = 0;          // guarded by mutex_
  std::vector<std::byte*> slabs_;  // grows under mutex_, within what reserve() made room for
  std::vector<RowMemory> owners_;  // guarded by mutex_
};

}  // namespace trireme
