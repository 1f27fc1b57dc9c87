#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/layer_norm.cc"
#include "kernel/simd/targets.h"

#include <hwy/foreach_target.h>

#include "kernel/simd/both.h"
#include "kernel/simd/layer_norm.h"
#include "kernel/simd/vector-inl.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace trireme::kernel::simd {
namespace HWY_NAMESPACE {
namespace {

// Of the squared differences from `mean`. The zeros that load() puts behind a tail would each count
// as mean^2, so the tail goes element by element.
template <class T>
T sum_of_squares_around(int64_t width, const T* x, T mean) {
  const Vec<T> m = hn::Set(Tag<T>(), mean);
  const int64_t whole = width - width % kLanes<T>;
  Accumulator<T> squares;
  for_each_vector<T>(whole, [&](auto load, auto) HWY_ATTR {
    const Vec<T> v = hn::Sub(load(x), m);
    squares.add_product(v, v);
  });
  T sum = squares.sum();
  for (int64_t i = whole; i < width; ++i) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

template <class T>
void forward(int64_t rows, int64_t width, const T* residual, const T* delta, const T* weight,
             const T* bias, double eps, T* r, T* y, T* mean, T* rstd) {
  const Tag<T> d;
  for (int64_t row = 0; row < rows; ++row) {
    Accumulator<T> sum;
    const T* x = residual;
    if (delta) {
      for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
        const Vec<T> v = hn::Add(load(residual), load(delta));
        store(v, r);
        sum.add(v);
      });
      x = r;
      delta += width;
      r += width;
    } else {
      for_each_vector<T>(width, [&](auto load, auto) HWY_ATTR { sum.add(load(residual)); });
    }
    mean[row] = sum.sum() / static_cast<T>(width);
    const T variance = sum_of_squares_around(width, x, mean[row]) / static_cast<T>(width);
    rstd[row] = 1 / std::sqrt(variance + static_cast<T>(eps));
    const Vec<T> m = hn::Set(d, mean[row]), scale = hn::Set(d, rstd[row]);
    for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
      store(hn::MulAdd(hn::Mul(hn::Sub(load(x), m), scale), load(weight), load(bias)), y);
    });
    residual += width;
    y += width;
  }
}

template <class T>
void backward(int64_t rows, int64_t width, const T* r, const T* mean, const T* rstd,
              const T* weight, const T* dy, const T* d_r, T* dx, T* d_weight, T* d_bias) {
  const Tag<T> d;
  for (int64_t row = 0; row < rows; ++row) {
    const Vec<T> m = hn::Set(d, mean[row]), scale = hn::Set(d, rstd[row]);
    Accumulator<T> sum, products;
    for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
      const Vec<T> x = hn::Mul(hn::Sub(load(r), m), scale), g = load(dy);
      if (d_weight) store(hn::MulAdd(g, x, load(d_weight)), d_weight);
      if (d_bias) store(hn::Add(g, load(d_bias)), d_bias);
      const Vec<T> own = hn::Mul(g, load(weight));  // zero in a tail, like g
      sum.add(own);
      products.add_product(own, x);
    });
    const Vec<T> mean_g = hn::Set(d, sum.sum() / static_cast<T>(width));
    const Vec<T> mean_gx = hn::Set(d, products.sum() / static_cast<T>(width));
    for_each_vector<T>(width, [&](auto load, auto store) HWY_ATTR {
      const Vec<T> x = hn::Mul(hn::Sub(load(r), m), scale), g = hn::Mul(load(dy), load(weight));
      const Vec<T> own = hn::NegMulAdd(x, mean_gx, hn::Sub(g, mean_g));
      store(d_r ? hn::MulAdd(own, scale, load(d_r)) : hn::Mul(own, scale), dx);
    });
    r += width;
    dy += width;
    dx += width;
    if (d_r) d_r += width;
  }
}

template <class T>
LayerNormLoops<T> loops_of() {
  return {&forward<T>, &backward<T>};
}

}  // namespace

Both<LayerNormLoops> all_layer_norm_loops() { return {loops_of<float>(), loops_of<double>()}; }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace trireme::kernel::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernel::simd {

HWY_EXPORT(all_layer_norm_loops);

template <>
LayerNormLoops<float> layer_norm_loops() {
  return HWY_DYNAMIC_DISPATCH(all_layer_norm_loops)().of_float;
}

template <>
LayerNormLoops<double> layer_norm_loops() {
  return HWY_DYNAMIC_DISPATCH(all_layer_norm_loops)().of_double;
}

}  // namespace trireme::kernel::simd
#endif
