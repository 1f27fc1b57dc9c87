// The loops of rms_norm.h, over rows of `width`. For float and double.
#pragma once

#include <cstdint>

namespace trireme::kernel::simd {

template <class T>
struct RmsNormLoops {
  // r = residual + delta (delta null: r is not written), y = r * rstd * (offset + weight).
  void (*forward)(int64_t rows, int64_t width, const T* residual, const T* delta, const T* weight,
                  double offset, double eps, T* r, T* y, T* rstd);
  // dx = d_r + rstd * (g - x^ mean(g x^)) with g = dy * (offset + weight), x^ = r * rstd; d_r may
  // be null, and dx may be d_r. d_weight += sum over rows of dy * x^, in the order of rows; null:
  // not wanted.
  void (*backward)(int64_t rows, int64_t width, const T* r, const T* rstd, const T* weight,
                   double offset, const T* dy, const T* d_r, T* dx, T* d_weight);
};

template <class T>
RmsNormLoops<T> rms_norm_loops();  // for this CPU

}  // namespace trireme::kernel::simd
