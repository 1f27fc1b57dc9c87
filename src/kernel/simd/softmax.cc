#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/softmax.cc"
#include "kernel/simd/targets.h"

#include <hwy/foreach_target.h>

#include "kernel/simd/both.h"
#include "kernel/simd/softmax.h"
#include "kernel/simd/vector-inl.h"

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace trireme::kernel::simd {
namespace HWY_NAMESPACE {
namespace {

// Sums of exp run in T over this many elements and from there in double: a float sum over a whole
// vocabulary would cost the loss a digit.
constexpr int64_t kBlock = 1024;

template <class T>
T maximum_of(int64_t n, const T* z) {
  const Tag<T> d;
  const Vec<T> lowest = hn::Set(d, -std::numeric_limits<T>::infinity());
  Vec<T> m0 = lowest, m1 = lowest;
  int64_t i = 0;
  for (; i + 2 * kLanes<T> <= n; i += 2 * kLanes<T>) {
    m0 = hn::Max(m0, hn::LoadU(d, z + i));
    m1 = hn::Max(m1, hn::LoadU(d, z + i + kLanes<T>));
  }
  T m = max_of_lanes<T>(hn::Max(m0, m1));
  for (; i < n; ++i) m = std::max(m, z[i]);
  return m;
}

// The sum of exp(z - maximum), whose terms go to `out` unless kKeep is false. A NaN that the
// maximum missed makes the sum NaN.
template <bool kKeep, class T>
double sum_of_exp(int64_t n, const T* z, T maximum, T* out) {
  const Tag<T> d;
  const Vec<T> m = hn::Set(d, maximum), log2_e = hn::Set(d, static_cast<T>(kLog2E));
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t block = std::min(kBlock, n - begin), whole = block - block % kLanes<T>;
    Accumulator<T> sum;
    for_each_vector<T>(whole, [&](auto load, auto store) HWY_ATTR {
      const Vec<T> e = exp2<T>(hn::Mul(hn::Sub(load(z + begin), m), log2_e));
      if (kKeep) store(e, out + begin);
      sum.add(e);
    });
    total += sum.sum();
    // The tail apart: the zeros that load() puts behind it would count as exp(-maximum).
    if (whole < block) {
      const int64_t i = begin + whole, rest = block - whole;
      const Vec<T> e = exp2<T>(hn::Mul(hn::Sub(load_some(z + i, rest), m), log2_e));
      HWY_ALIGN T lanes[kLanes<T>];
      hn::Store(e, d, lanes);
      for (int64_t k = 0; k < rest; ++k) {
        total += lanes[k];
        if (kKeep) out[i + k] = lanes[k];
      }
    }
  }
  return total;
}

template <class T>
double log_sum_exp(int64_t n, const T* z) {
  const T m = maximum_of(n, z);
  return m + std::log(sum_of_exp<false, T>(n, z, m, nullptr));
}

template <class T>
double softmax_in_place(int64_t n, T* z, double scale) {
  const T m = maximum_of(n, z);
  const double sum = sum_of_exp<true>(n, z, m, z);
  const Vec<T> factor = hn::Set(Tag<T>(), static_cast<T>(scale / sum));
  for_each_vector<T>(n,
                     [&](auto load, auto store) HWY_ATTR { store(hn::Mul(load(z), factor), z); });
  return m + std::log(sum);
}

template <class T>
void bend(int64_t n, T* z, double cap, T* slopes) {
  const Tag<T> d;
  const Vec<T> whole = hn::Set(d, static_cast<T>(cap)), part = hn::Set(d, static_cast<T>(1 / cap));
  for_each_vector<T>(n, [&](auto load, auto store) HWY_ATTR {
    const Vec<T> t = hn::Tanh(d, hn::Mul(load(z), part));
    store(hn::Mul(whole, t), z);
    if (slopes) store(hn::NegMulAdd(t, t, hn::Set(d, T{1})), slopes);
  });
}

template <class T>
void multiply(int64_t n, const T* x, T* into) {
  for_each_vector<T>(
      n, [&](auto load, auto store) HWY_ATTR { store(hn::Mul(load(into), load(x)), into); });
}

template <class T>
SoftmaxLoops<T> loops_of() {
  return {&log_sum_exp<T>, &softmax_in_place<T>, &bend<T>, &multiply<T>};
}

}  // namespace

Both<SoftmaxLoops> all_softmax_loops() { return {loops_of<float>(), loops_of<double>()}; }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace trireme::kernel::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernel::simd {

HWY_EXPORT(all_softmax_loops);

template <>
SoftmaxLoops<float> softmax_loops() {
  return HWY_DYNAMIC_DISPATCH(all_softmax_loops)().of_float;
}

template <>
SoftmaxLoops<double> softmax_loops() {
  return HWY_DYNAMIC_DISPATCH(all_softmax_loops)().of_double;
}

}  // namespace trireme::kernel::simd
#endif
