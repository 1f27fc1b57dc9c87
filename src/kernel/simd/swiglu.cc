#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/swiglu.cc"
#include "kernel/simd/targets.h"

#include <hwy/foreach_target.h>

#include "kernel/simd/both.h"
#include "kernel/simd/swiglu.h"
#include "kernel/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::kernel::simd {
namespace HWY_NAMESPACE {
namespace {

// 1 / (1 + exp(-x)), by exp(-|x|), which does not overflow.
template <class T>
HWY_INLINE Vec<T> sigmoid(Vec<T> x) {
  const Tag<T> d;
  const Vec<T> one = hn::Set(d, T{1});
  const Vec<T> e = exp2<T>(hn::Mul(hn::Abs(x), hn::Set(d, static_cast<T>(-kLog2E))));
  const Vec<T> positive = hn::Div(one, hn::Add(one, e));
  return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(e, positive), positive);
}

template <class T>
void forward(int64_t rows, int64_t width, const T* gate_up, T* out) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, out += width)
    for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
      const Vec<T> gate = load(gate_up);
      store(hn::Mul(hn::Mul(gate, sigmoid<T>(gate)), load(gate_up + width)), out);
    });
}

// With s = sigmoid(gate): d silu = s + silu (1 - s).
template <class T>
void backward(int64_t rows, int64_t width, const T* gate_up, const T* d_out, T* d_gate_up) {
  for (int64_t row = 0; row < rows; ++row) {
    for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
      const Vec<T> gate = load(gate_up), g = load(d_out), s = sigmoid<T>(gate);
      const Vec<T> silu = hn::Mul(gate, s);
      store(hn::Mul(hn::Mul(g, load(gate_up + width)), hn::Add(s, hn::NegMulAdd(silu, s, silu))),
            d_gate_up);
      store(hn::Mul(g, silu), d_gate_up + width);
    });
    gate_up += 2 * width;
    d_gate_up += 2 * width;
    d_out += width;
  }
}

template <class T>
SwigluLoops<T> loops_of() {
  return {&forward<T>, &backward<T>};
}

}  // namespace

Both<SwigluLoops> all_swiglu_loops() { return {loops_of<float>(), loops_of<double>()}; }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace trireme::kernel::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernel::simd {

HWY_EXPORT(all_swiglu_loops);

template <>
SwigluLoops<float> swiglu_loops() {
  return HWY_DYNAMIC_DISPATCH(all_swiglu_loops)().of_float;
}

template <>
SwigluLoops<double> swiglu_loops() {
  return HWY_DYNAMIC_DISPATCH(all_swiglu_loops)().of_double;
}

}  // namespace trireme::kernel::simd
#endif
