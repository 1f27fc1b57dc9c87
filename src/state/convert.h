// Elements of one type from elements of another.
//
// Among fp64, fp32, bf16 and fp16 a value is rounded to the nearest, ties to even, once, also from
// fp64 to the 16-bit types; what is too large becomes infinite; NaN stays NaN. Pure functions; any
// alignment. Cost: bound by memory for equal types and fp32 <-> bf16, about 1 ns an element else.
#pragma once

#include <cstddef>
#include <span>

#include "layout/dtype.h"

namespace trireme {

bool is_floating(DType dtype);

// Equal types, or both floating.
bool convertible(DType from, DType to);

// REQUIRES: convertible, and as many elements in `in` as in `out`.
void convert(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out);

// Any type, for looking at: int64 beyond 2^53 is rounded.
void to_doubles(DType from, std::span<const std::byte> in, std::span<double> out);

}  // namespace trireme
