// The loops of layer_norm.h, over rows of `width`. For float and double.
#pragma once

#include <cstdint>

namespace trireme::kernel::simd {

template <class T>
struct LayerNormLoops {
  // r = residual + delta (delta null: r is not written), y = (r - mean) * rstd * weight + bias.
  void (*forward)(int64_t rows, int64_t width, const T* residual, const T* delta, const T* weight,
                  const T* bias, double eps, T* r, T* y, T* mean, T* rstd);
  // dx = d_r + rstd * (g - mean(g) - x^ mean(g x^)) with g = dy * weight, x^ = (r - mean) * rstd;
  // d_r may be null. d_weight += sum over rows of dy * x^, d_bias of dy, in the order of rows;
  // null: not wanted.
  void (*backward)(int64_t rows, int64_t width, const T* r, const T* mean, const T* rstd,
                   const T* weight, const T* dy, const T* d_r, T* dx, T* d_weight, T* d_bias);
};

template <class T>
LayerNormLoops<T> layer_norm_loops();  // for this CPU

}  // namespace trireme::kernel::simd
