// Each file of simd/ offers a struct of function pointers, its loops, for float and for double;
// they cross from the instruction sets' namespaces to the caller as one value.
#pragma once

namespace trireme::kernel::simd {

template <template <class> class Loops>
struct Both {
  Loops<float> of_float;
  Loops<double> of_double;
};

}  // namespace trireme::kernel::simd
