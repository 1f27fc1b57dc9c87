// The loops of cross_entropy.h over one row of logits. For float and double.
#pragma once

#include <cstdint>

namespace trireme::kernel::simd {

template <class T>
struct SoftmaxLoops {
  // ln(sum(exp(z))).
  double (*log_sum_exp)(int64_t n, const T* z);
  // The same, and z = scale * softmax(z).
  double (*softmax_in_place)(int64_t n, T* z, double scale);
  // z = cap tanh(z / cap); slopes, unless null, = 1 - tanh^2.
  void (*bend)(int64_t n, T* z, double cap, T* slopes);
  void (*multiply)(int64_t n, const T* x, T* into);  // into *= x
};

template <class T>
SoftmaxLoops<T> softmax_loops();  // for this CPU

}  // namespace trireme::kernel::simd
