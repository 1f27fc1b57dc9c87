// The loops of swiglu.h, over rows of gate and up, `width` each. For float and double.
#pragma once

#include <cstdint>

namespace trireme::kernel::simd {

template <class T>
struct SwigluLoops {
  void (*forward)(int64_t rows, int64_t width, const T* gate_up, T* out);
  void (*backward)(int64_t rows, int64_t width, const T* gate_up, const T* d_out, T* d_gate_up);
};

template <class T>
SwigluLoops<T> swiglu_loops();  // for this CPU

}  // namespace trireme::kernel::simd
