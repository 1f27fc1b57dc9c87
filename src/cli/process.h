// What is set once for the whole process, before the first tensor: only verbs that compute call it.
#pragma once

#include "kernel/allocator.h"

namespace trireme {

// One ATen thread for the calling thread, malloc that keeps its memory, our counting allocator
// below libtorch. Returns the allocator, which lives as long as the process. Once; not after a
// tensor was made.
kernel::CountingAllocator* prepare_process();

}  // namespace trireme
