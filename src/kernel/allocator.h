// The CPU memory of tensors: counted by rank, and kept for reuse.
//
// libtorch's own CPU allocator returns every block to malloc, which maps a block of more than 32 MB
// anew for each operation; first touch then costs seven times the copy. This one keeps freed
// blocks. main makes one, gives it to libtorch and never destroys it (tensors outlive main's
// locals):
//
//   auto* allocator = new CountingAllocator({.cache_bytes = 4 << 30});
//   c10::SetCPUAllocator(allocator, 1);
//
// Threads: any, for every call. A block may be freed on another thread than its maker's; it counts
// for its maker's rank until then.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace trireme::kernel {

struct MemoryCount {
  int64_t live_bytes = 0;  // asked for by tensors that exist
  int64_t peak_bytes = 0;  // the most of it since the last reset_peaks()
};

// While it lives, blocks made on this thread count for `rank`. Scopes nest. Threads without one
// count for the process only.
class MemoryScope {
 public:
  explicit MemoryScope(int rank);  // REQUIRES: 0 <= rank < CountingAllocator::kRanks
  ~MemoryScope();
  MemoryScope(const MemoryScope&) = delete;
  MemoryScope& operator=(const MemoryScope&) = delete;

 private:
  int before_;
};

struct AllocatorOptions {
  // The most that freed blocks may hold; the longest unused go back to the system. 0: no reuse, so
  // that a sanitizer sees each block's end.
  int64_t cache_bytes;
};

class CountingAllocator final : public c10::Allocator {
 public:
  static constexpr int kRanks = 1024;

  explicit CountingAllocator(AllocatorOptions options);
  ~CountingAllocator() override;  // REQUIRES: no block is live

  c10::DataPtr allocate(size_t nbytes) override;  // 64-byte aligned; RunError if there is no memory
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* dest, const void* src, std::size_t count) const override;

  MemoryCount process() const;
  MemoryCount rank(int rank) const;
  void reset_peaks();            // every peak becomes what is live now
  int64_t cached_bytes() const;  // held for reuse
  void release_cache();          // to the system

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Tells malloc to keep memory as well: for what is no tensor. Process-wide, so for main only,
// first.
void tune_malloc();

}  // namespace trireme::kernel
