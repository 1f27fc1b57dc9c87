// A linear layer of so few rows that reading its weight is what costs. For float and double.
#pragma once

#include <cstdint>

namespace trireme::kernel::simd {

template <class T>
struct FewRowsLoops {
  // y [rows, out] = x [rows, in] weight^T + bias, weight [out, in], rows of y y_stride apart; bias
  // null: none. The weight is read once, whatever `rows` is.
  void (*multiply)(int64_t rows, int64_t in, int64_t out, const T* x, const T* weight,
                   const T* bias, T* y, int64_t y_stride);
};

template <class T>
FewRowsLoops<T> few_rows_loops();  // for this CPU

}  // namespace trireme::kernel::simd
