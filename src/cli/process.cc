#include "cli/process.h"

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

namespace trireme {

kernel::CountingAllocator* prepare_process() {
  constexpr int64_t kCacheBytes = int64_t{8} << 30;  // freed blocks that may wait for reuse
  kernel::tune_malloc();
  static auto* const allocator =
      new kernel::CountingAllocator({.cache_bytes = kCacheBytes});  // tensors outlive main
  c10::SetCPUAllocator(allocator, 1);
  at::set_num_threads(1);
  return allocator;
}

}  // namespace trireme
