#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/rms_norm.cc"
#include "kernel/simd/targets.h"

#include <hwy/foreach_target.h>

#include "kernel/simd/both.h"
#include "kernel/simd/rms_norm.h"
#include "kernel/simd/vector-inl.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace trireme::kernel::simd {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void forward(int64_t rows, int64_t width, const T* residual, const T* delta, const T* weight,
             double offset, double eps, T* r, T* y, T* rstd) {
  const Tag<T> d;
  const Vec<T> shift = hn::Set(d, static_cast<T>(offset));
  for (int64_t row = 0; row < rows; ++row) {
    Accumulator<T> squares;
    const T* x = residual;
    if (delta) {
      for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
        const Vec<T> v = hn::Add(load(residual), load(delta));
        store(v, r);
        squares.add_product(v, v);
      });
      x = r;
      delta += width;
      r += width;
    } else {
      for_each_vector<T>(width, [&](auto load, auto) HWY_ATTR {
        const Vec<T> v = load(residual);
        squares.add_product(v, v);
      });
    }
    const T scale = 1 / std::sqrt(squares.sum() / static_cast<T>(width) + static_cast<T>(eps));
    rstd[row] = scale;
    const Vec<T> factor = hn::Set(d, scale);
    for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
      store(hn::Mul(hn::Mul(load(x), factor), hn::Add(shift, load(weight))), y);
    });
    residual += width;
    y += width;
  }
}

template <class T>
void backward(int64_t rows, int64_t width, const T* r, const T* rstd, const T* weight,
              double offset, const T* dy, const T* d_r, T* dx, T* d_weight) {
  const Tag<T> d;
  const Vec<T> shift = hn::Set(d, static_cast<T>(offset));
  for (int64_t row = 0; row < rows; ++row) {
    const Vec<T> scale = hn::Set(d, rstd[row]);
    Accumulator<T> products;
    for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
      const Vec<T> x = hn::Mul(load(r), scale), g = load(dy);
      if (d_weight) store(hn::MulAdd(g, x, load(d_weight)), d_weight);
      products.add_product(hn::Mul(g, hn::Add(shift, load(weight))), x);
    });
    const Vec<T> mean = hn::Set(d, products.sum() / static_cast<T>(width));
    for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
      const Vec<T> x = hn::Mul(load(r), scale);
      const Vec<T> g = hn::Mul(load(dy), hn::Add(shift, load(weight)));
      const Vec<T> own = hn::NegMulAdd(x, mean, g);
      store(d_r ? hn::MulAdd(own, scale, load(d_r)) : hn::Mul(own, scale), dx);
    });
    r += width;
    dy += width;
    dx += width;
    if (d_r) d_r += width;
  }
}

template <class T>
RmsNormLoops<T> loops_of() {
  return {&forward<T>, &backward<T>};
}

}  // namespace

Both<RmsNormLoops> all_rms_norm_loops() { return {loops_of<float>(), loops_of<double>()}; }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace trireme::kernel::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernel::simd {

HWY_EXPORT(all_rms_norm_loops);

template <>
RmsNormLoops<float> rms_norm_loops() {
  return HWY_DYNAMIC_DISPATCH(all_rms_norm_loops)().of_float;
}

template <>
RmsNormLoops<double> rms_norm_loops() {
  return HWY_DYNAMIC_DISPATCH(all_rms_norm_loops)().of_double;
}

}  // namespace trireme::kernel::simd
#endif
