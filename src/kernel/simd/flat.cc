#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/flat.cc"
#include "kernel/simd/targets.h"

#include <hwy/foreach_target.h>

#include "kernel/simd/both.h"
#include "kernel/simd/flat.h"
#include "kernel/simd/vector-inl.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace trireme::kernel::simd {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kBlock = 4096;

template <class T>
void add(int64_t n, const T* x, T* into) {
  for_each_vector<T>(
      n, [&](auto load, auto store) HWY_ATTR { store(hn::Add(load(into), load(x)), into); });
}

template <class T>
void add_scaled(int64_t n, double scale, const T* x, T* into) {
  const Vec<T> factor = hn::Set(Tag<T>(), static_cast<T>(scale));
  for_each_vector<T>(n, [&](auto load, auto store)
                            HWY_ATTR { store(hn::MulAdd(load(x), factor, load(into)), into); });
}

double block_of_squares(int64_t n, const double* x) {
  Accumulator<double> sum;
  for_each_vector<double>(n, [&](auto load, auto) HWY_ATTR {
    const Vec<double> v = load(x);
    sum.add_product(v, v);
  });
  return sum.sum();
}

double block_of_squares(int64_t n, const float* x) {
  const Tag<double> d;
  const hn::Rebind<float, Tag<double>> narrow;
  constexpr int64_t kStep = kLanes<double>;
  Vec<double> sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * kStep <= n; i += 2 * kStep) {
    const Vec<double> a = hn::PromoteTo(d, hn::LoadU(narrow, x + i));
    const Vec<double> b = hn::PromoteTo(d, hn::LoadU(narrow, x + i + kStep));
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  double rest = 0;
  for (; i < n; ++i) rest += static_cast<double>(x[i]) * x[i];
  return sum_of_lanes<double>(hn::Add(sum0, sum1)) + rest;
}

template <class T>
double add_up(int64_t n, const T* const* others, int64_t count, T* into) {
  double total = 0;
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t block = std::min(kBlock, n - i);
    for (int64_t k = 0; k < count; ++k) add(block, others[k] + i, into + i);
    total += block_of_squares(block, into + i);
  }
  return total;
}

template <class T>
double sum_of_squares(int64_t n, const T* x) {
  double total = 0;
  for (int64_t i = 0; i < n; i += kBlock) total += block_of_squares(std::min(kBlock, n - i), x + i);
  return total;
}

template <class T>
void adamw(int64_t n, const AdamWFactors& factors, const T* g, T* p, T* m, T* v) {
  const auto set = [](double value) HWY_ATTR { return hn::Set(Tag<T>(), static_cast<T>(value)); };
  const Vec<T> scale = set(factors.scale), eps = set(factors.eps);
  const Vec<T> beta1 = set(factors.beta1), new1 = set(1 - factors.beta1);
  const Vec<T> beta2 = set(factors.beta2), new2 = set(1 - factors.beta2);
  const Vec<T> keep = set(factors.keep), rate = set(factors.rate);
  const Vec<T> root_scale = set(factors.root_scale);
  for_each_vector<T>(n, [&](auto load, auto store) HWY_ATTR {
    const Vec<T> x = hn::Mul(load(g), scale);
    const Vec<T> mean = hn::MulAdd(beta1, load(m), hn::Mul(new1, x));
    const Vec<T> square = hn::MulAdd(beta2, load(v), hn::Mul(new2, hn::Mul(x, x)));
    const Vec<T> root = hn::MulAdd(hn::Sqrt(square), root_scale, eps);
    store(mean, m);
    store(square, v);
    store(hn::NegMulAdd(rate, hn::Div(mean, root), hn::Mul(load(p), keep)), p);
  });
}

template <class T>
FlatLoops<T> loops_of() {
  return {&add_scaled<T>, &sum_of_squares<T>, &add_up<T>, &adamw<T>};
}

}  // namespace

Both<FlatLoops> all_flat_loops() { return {loops_of<float>(), loops_of<double>()}; }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace trireme::kernel::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernel::simd {

HWY_EXPORT(all_flat_loops);

template <>
FlatLoops<float> flat_loops() {
  return HWY_DYNAMIC_DISPATCH(all_flat_loops)().of_float;
}

template <>
FlatLoops<double> flat_loops() {
  return HWY_DYNAMIC_DISPATCH(all_flat_loops)().of_double;
}

}  // namespace trireme::kernel::simd
#endif
