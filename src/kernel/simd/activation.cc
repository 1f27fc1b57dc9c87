#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/activation.cc"
#include "kernel/simd/targets.h"

#include <hwy/foreach_target.h>

#include "kernel/simd/activation.h"
#include "kernel/simd/both.h"
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

// Both are x sigmoid(z(x)), so with s the sigmoid: value x s, derivative s + x s (1 - s) z'(x).
struct Silu {
  template <class T>
  static HWY_INLINE Vec<T> z(Vec<T> x) {
    return x;
  }
  template <class T>
  static HWY_INLINE Vec<T> slope(Vec<T>) {
    return hn::Set(Tag<T>(), T{1});
  }
};

// (1 + tanh(u)) / 2 is sigmoid(2u).
struct Gelu {
  static constexpr double kLinear = 1.5957691216057308;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715 * kLinear;

  template <class T>
  static HWY_INLINE Vec<T> z(Vec<T> x) {
    const Tag<T> d;
    const Vec<T> linear = hn::Set(d, static_cast<T>(kLinear));
    return hn::Mul(x, hn::MulAdd(hn::Mul(x, x), hn::Set(d, static_cast<T>(kCubic)), linear));
  }
  template <class T>
  static HWY_INLINE Vec<T> slope(Vec<T> x) {
    const Tag<T> d;
    const Vec<T> linear = hn::Set(d, static_cast<T>(kLinear));
    return hn::MulAdd(hn::Mul(x, x), hn::Set(d, static_cast<T>(3 * kCubic)), linear);
  }
};

template <class Act, bool kGated, class T>
void forward(int64_t rows, int64_t width, const T* x, T* out) {
  for (int64_t row = 0; row < rows; ++row, x += kGated ? 2 * width : width, out += width)
    for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
      const Vec<T> v = load(x);
      const Vec<T> y = hn::Mul(v, sigmoid<T>(Act::template z<T>(v)));
      if constexpr (kGated) store(hn::Mul(y, load(x + width)), out);
      else store(y, out);
    });
}

template <class Act, bool kGated, class T>
void backward(int64_t rows, int64_t width, const T* x, const T* d_out, T* dx) {
  for (int64_t row = 0; row < rows; ++row) {
    for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
      const Vec<T> v = load(x), g = load(d_out), s = sigmoid<T>(Act::template z<T>(v));
      const Vec<T> y = hn::Mul(v, s);
      const Vec<T> slope = hn::MulAdd(hn::NegMulAdd(y, s, y), Act::template slope<T>(v), s);
      if constexpr (kGated) {
        store(hn::Mul(hn::Mul(g, load(x + width)), slope), dx);
        store(hn::Mul(g, y), dx + width);
      } else {
        store(hn::Mul(g, slope), dx);
      }
    });
    x += kGated ? 2 * width : width;
    dx += kGated ? 2 * width : width;
    d_out += width;
  }
}

template <class Act, bool kGated, class T>
ActivationLoops<T> loops() {
  return {&forward<Act, kGated, T>, &backward<Act, kGated, T>};
}

template <class T>
Activations<T> all_of() {
  return {loops<Silu, true, T>(), loops<Gelu, true, T>(), loops<Gelu, false, T>()};
}

}  // namespace

Both<Activations> all_activations() { return {all_of<float>(), all_of<double>()}; }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace trireme::kernel::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernel::simd {

HWY_EXPORT(all_activations);

template <>
Activations<float> activations() {
  return HWY_DYNAMIC_DISPATCH(all_activations)().of_float;
}

template <>
Activations<double> activations() {
  return HWY_DYNAMIC_DISPATCH(all_activations)().of_double;
}

}  // namespace trireme::kernel::simd
#endif
