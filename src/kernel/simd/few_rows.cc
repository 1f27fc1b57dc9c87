#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/few_rows.cc"
#include "kernel/simd/targets.h"

#include <hwy/foreach_target.h>

#include "kernel/simd/both.h"
#include "kernel/simd/few_rows.h"
#include "kernel/simd/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace trireme::kernel::simd {
namespace HWY_NAMESPACE {
namespace {

// Rows of the weight side by side: as many streams from memory, and with two rows of x eight sums
// that do not wait for each other.
constexpr int kOutputs = 4;

template <int kRows, int kOuts, class T>
HWY_INLINE void dot_products(int64_t in, const T* x, const T* weight, const T* bias, T* y,
                             int64_t y_stride) {
  const Tag<T> d;
  Vec<T> sums[kRows][kOuts];
  TRIREME_UNROLL
  for (int r = 0; r < kRows; ++r) {
    TRIREME_UNROLL
    for (int o = 0; o < kOuts; ++o) sums[r][o] = hn::Zero(d);
  }
  for_each_vector<T>(in, [&](auto load, auto) HWY_ATTR {
    Vec<T> w[kOuts];
    TRIREME_UNROLL
    for (int o = 0; o < kOuts; ++o) w[o] = load(weight + o * in);
    TRIREME_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Vec<T> v = load(x + r * in);
      TRIREME_UNROLL
      for (int o = 0; o < kOuts; ++o) sums[r][o] = hn::MulAdd(v, w[o], sums[r][o]);
    }
  });
  for (int r = 0; r < kRows; ++r)
    for (int o = 0; o < kOuts; ++o)
      y[r * y_stride + o] = sum_of_lanes<T>(sums[r][o]) + (bias ? bias[o] : T{0});
}

template <int kOuts, class T>
HWY_INLINE void all_rows(int64_t rows, int64_t in, const T* x, const T* weight, const T* bias, T* y,
                         int64_t y_stride) {
  int64_t row = 0;
  for (; row + 2 <= rows; row += 2)
    dot_products<2, kOuts>(in, x + row * in, weight, bias, y + row * y_stride, y_stride);
  if (row < rows)
    dot_products<1, kOuts>(in, x + row * in, weight, bias, y + row * y_stride, y_stride);
}

template <class T>
void multiply(int64_t rows, int64_t in, int64_t out, const T* x, const T* weight, const T* bias,
              T* y, int64_t y_stride) {
  int64_t o = 0;
  for (; o + kOutputs <= out; o += kOutputs)
    all_rows<kOutputs>(rows, in, x, weight + o * in, bias ? bias + o : nullptr, y + o, y_stride);
  for (; o < out; ++o)
    all_rows<1>(rows, in, x, weight + o * in, bias ? bias + o : nullptr, y + o, y_stride);
}

template <class T>
FewRowsLoops<T> loops_of() {
  return {&multiply<T>};
}

}  // namespace

Both<FewRowsLoops> all_few_rows_loops() { return {loops_of<float>(), loops_of<double>()}; }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace trireme::kernel::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernel::simd {

HWY_EXPORT(all_few_rows_loops);

template <>
FewRowsLoops<float> few_rows_loops() {
  return HWY_DYNAMIC_DISPATCH(all_few_rows_loops)().of_float;
}

template <>
FewRowsLoops<double> few_rows_loops() {
  return HWY_DYNAMIC_DISPATCH(all_few_rows_loops)().of_double;
}

}  // namespace trireme::kernel::simd
#endif
