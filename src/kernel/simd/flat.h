// Loops over flat ranges: sums, their squares, and AdamW (adamw.h). For float and double.
#pragma once

#include <cstdint>

namespace trireme::kernel::simd {

// p = keep p - rate m' / (root_scale sqrt(v') + eps), with m', v' the new moments of scale * g.
struct AdamWFactors {
  double scale, beta1, beta2, keep, rate, root_scale, eps;
};

template <class T>
struct FlatLoops {
  void (*add_scaled)(int64_t n, double scale, const T* x, T* into);  // into += scale x
  // In double, over blocks of 4096 in their order.
  double (*sum_of_squares)(int64_t n, const T* x);
  // into += others[0] + … one after the other; returns the sum of squares of the result.
  double (*add_up)(int64_t n, const T* const* others, int64_t count, T* into);
  void (*adamw)(int64_t n, const AdamWFactors& factors, const T* g, T* p, T* m, T* v);
};

template <class T>
FlatLoops<T> flat_loops();  // for this CPU

}  // namespace trireme::kernel::simd
