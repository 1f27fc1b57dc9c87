// The loops of activation.h. For float and double.
#pragma once

#include <cstdint>

namespace trireme::kernel::simd {

// Over rows of gate and up, `width` each, or of x alone.
template <class T>
struct ActivationLoops {
  void (*forward)(int64_t rows, int64_t width, const T* x, T* out);
  void (*backward)(int64_t rows, int64_t width, const T* x, const T* d_out, T* dx);
};

template <class T>
struct Activations {
  ActivationLoops<T> swiglu, geglu, gelu;
};

template <class T>
Activations<T> activations();  // for this CPU

}  // namespace trireme::kernel::simd
