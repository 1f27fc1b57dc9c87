#include "sparse/row_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/log.h"

namespace trireme {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;
constexpr size_t kSlabBytes = size_t{1}
                              << 23;  // the least: below it the tail of a slab wastes too much
constexpr size_t kLine = 64;

size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

RowMemory allocate_rows_memory(size_t bytes, bool huge) {
  huge = huge && bytes >= kHugePage;
  void* memory = nullptr;
  if (posix_memalign(&memory, huge ? kHugePage : kLine, bytes) != 0)
    throw RunError(concat("row table: no memory for another ", format_bytes(bytes),
                          "; use fewer rows, a smaller dim, or evict"));
#ifdef MADV_HUGEPAGE
  // Advice only: without huge pages everything works, slower.
  if (huge) (void)madvise(memory, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  return RowMemory(static_cast<std::byte*>(memory));
}

RowStore::RowStore(int64_t floats) {
  TRIREME_ASSERT(floats > 0, "floats ", floats);
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  const bool one_line = sizeof(RowHeader) + bytes <= kLine;
  floats_stride_ = one_line ? kLine : round_up(bytes, 16);
  header_stride_ = one_line ? kLine : sizeof(RowHeader);
  const size_t row_bytes = one_line ? kLine : floats_stride_ + header_stride_;
  const size_t rows = std::bit_ceil(std::max<size_t>(kSlabBytes / row_bytes, kChunkRows));
  slab_bits_ = std::countr_zero(rows);
  slab_mask_ = static_cast<uint32_t>(rows - 1);
  header_offset_ = one_line ? 0 : rows * floats_stride_;
  floats_offset_ = one_line ? sizeof(RowHeader) : 0;
}

void RowStore::reserve(int64_t rows, int64_t takers) {
  const std::lock_guard lock(mutex_);
  const uint64_t last = next_row_ + static_cast<uint64_t>(rows) + takers * kChunkRows;
  const size_t slabs = (last >> slab_bits_) + 1;
  if (slabs <= slabs_.capacity()) return;
  slabs_.reserve(std::max(slabs, 2 * slabs_.capacity()));
  owners_.reserve(slabs_.capacity());
}

uint32_t RowStore::take_chunk() {
  const uint32_t first = take_rows();
  for (uint32_t row = first; row < first + kChunkRows; ++row) header(row) = RowHeader{};
  return first;
}

uint32_t RowStore::take_rows() {
  const std::lock_guard lock(mutex_);
  if (next_row_ + kChunkRows > kNoRow)
    throw RunError(
        concat("row table: full at ", format_count(next_row_),
               " rows, the most that one table of one rank holds; spread it over more ranks"));
  const auto first = static_cast<uint32_t>(next_row_);
  if ((first & slab_mask_) == 0) {
    TRIREME_ASSERT(slabs_.size() < slabs_.capacity(), "slab ", slabs_.size(), " was not reserved");
    // The first slab is often the only one and mostly empty: ordinary pages keep small tables
    // small.
    owners_.push_back(
        allocate_rows_memory((size_t{slab_mask_} + 1) * record_bytes(), !slabs_.empty()));
    slabs_.push_back(owners_.back().get());
  }
  next_row_ += kChunkRows;
  return first;
}

int64_t RowStore::record_bytes() const {
  return header_stride_ == floats_stride_ ? header_stride_ : header_stride_ + floats_stride_;
}

int64_t RowStore::reserved_bytes() const {
  return static_cast<int64_t>(owners_.size() * (size_t{slab_mask_} + 1)) * record_bytes();
}

}  // namespace trireme
