// Sums and maxima over the same elements of several buffers, in the order of the buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "layout/dtype.h"

namespace trireme {

bool can_reduce(DType dtype);  // fp64, fp32, bf16, fp16, int64, int32

// For each element i: x = sources[0][i] + sources[1][i] + …, in fp32 for bf16 and fp16, else in
// `dtype` (integers wrap), then to every destination, rounded once. A destination may be a source.
// REQUIRES: can_reduce(dtype), a source. Any thread. Cost: each source is read once; blocks of 512
// elements stay in cache.
void sum_in_order(DType dtype, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations, int64_t numel);
void max_in_order(DType dtype, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations,
                  int64_t numel);  // NaN if one is

// The same sum into one destination of type `out`, which is `dtype` or fp32; `accumulate` adds it
// to what is there.
void sum_in_order_to(DType dtype, std::span<const std::byte* const> sources, DType out,
                     std::byte* destination, int64_t numel, bool accumulate);

}  // namespace trireme
