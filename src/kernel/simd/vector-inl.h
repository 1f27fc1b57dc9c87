// Building blocks of the loops: tails, exp2, transposed panels, and the tile product. Compiled once
// per instruction set, so the guard toggles.
#if defined(TRIREME_KERNEL_SIMD_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TRIREME_KERNEL_SIMD_VECTOR_INL_H_
#undef TRIREME_KERNEL_SIMD_VECTOR_INL_H_
#else
#define TRIREME_KERNEL_SIMD_VECTOR_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#ifndef TRIREME_UNROLL
#if defined(__clang__)
#define TRIREME_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TRIREME_UNROLL _Pragma("GCC unroll 8")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace trireme::kernel::simd {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Tag = hn::ScalableTag<T>;
template <class T>
using Vec = hn::Vec<Tag<T>>;
template <class T>
inline constexpr int64_t kLanes = hn::MaxLanes(Tag<T>());
static_assert(!HWY_HAVE_SCALABLE);

// The first n < kLanes elements at p, zeros behind them. Reads no others.
template <class T>
HWY_INLINE Vec<T> load_some(const T* p, int64_t n) {
  HWY_ALIGN T lanes[kLanes<T>] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = p[i];
  return hn::Load(Tag<T>(), lanes);
}

template <class T>
HWY_INLINE void store_some(Vec<T> v, T* p, int64_t n) {
  HWY_ALIGN T lanes[kLanes<T>];
  hn::Store(v, Tag<T>(), lanes);
  for (int64_t i = 0; i < n; ++i) p[i] = lanes[i];
}

// Calls body(i, load, store) for i = 0, kLanes, … below n: load(p) is the vector at p[i], store(v,
// p) writes one there, and both touch only elements below n.
template <class T, class Body>
HWY_INLINE void for_each_vector(int64_t n, Body&& body) {
  const Tag<T> d;
  int64_t i = 0;
  for (; i + kLanes<T> <= n; i += kLanes<T>)
    body([&](const T* p) HWY_ATTR { return hn::LoadU(d, p + i); },
         [&](Vec<T> v, T* p) HWY_ATTR { hn::StoreU(v, d, p + i); });
  if (i < n)
    body([&](const T* p) HWY_ATTR { return load_some(p + i, n - i); },
         [&](Vec<T> v, T* p) HWY_ATTR { store_some(v, p + i, n - i); });
}

template <class T>
HWY_INLINE T sum_of_lanes(Vec<T> v) {
  return hn::GetLane(hn::SumOfLanes(Tag<T>(), v));
}
template <class T>
HWY_INLINE T max_of_lanes(Vec<T> v) {
  return hn::GetLane(hn::MaxOfLanes(Tag<T>(), v));
}

// A sum in two vectors, taken in turn: one alone would wait for each of its additions.
template <class T>
struct Accumulator {
  // Written out: a constructor of the compiler's making would not have the instruction set.
  HWY_INLINE Accumulator() : current(hn::Zero(Tag<T>())), other(hn::Zero(Tag<T>())) {}

  HWY_INLINE void add(Vec<T> v) { take(hn::Add(current, v)); }
  HWY_INLINE void add_product(Vec<T> a, Vec<T> b) { take(hn::MulAdd(a, b, current)); }
  HWY_INLINE T sum() const { return sum_of_lanes<T>(hn::Add(current, other)); }

 private:
  HWY_INLINE void take(Vec<T> v) {
    current = other;
    other = v;
  }

  Vec<T> current, other;
};

// 2^x for x below the exponent range's end (127, 1023). 0 below its start; NaN stays NaN.
//
// x = n + f with n whole and |f| <= 1/2: adding kRound leaves n, biased as an exponent, in the low
// bits of the sum. 2^f is a polynomial, minimax in the relative error: 1.9e-9 (degree 6, float),
// 3.1e-18 (degree 11, double), so what counts is rounding, about 1 unit in the last place.
template <class T>
HWY_INLINE Vec<T> exp2(Vec<T> x) {
  constexpr bool is_float = std::is_same_v<T, float>;
  using Bits = std::conditional_t<is_float, int32_t, int64_t>;
  constexpr int kMantissa = is_float ? 23 : 52;
  constexpr int64_t kBias = is_float ? 127 : 1023;
  constexpr T kRound = static_cast<T>((int64_t{3} << (kMantissa - 1)) + kBias);
  const Tag<T> d;
  const hn::Rebind<Bits, Tag<T>> bits;
  const auto c = [&](double value) HWY_ATTR { return hn::Set(d, static_cast<T>(value)); };
  const Vec<T> sum = hn::Add(x, hn::Set(d, kRound));
  const Vec<T> f = hn::Sub(x, hn::Sub(sum, hn::Set(d, kRound)));
  const Vec<T> two_to_n = hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::BitCast(bits, sum)));
  Vec<T> p;
  if constexpr (is_float) {
    p = hn::MulAdd(c(1.5345812e-4), f, c(1.3399931e-3));
    p = hn::MulAdd(p, f, c(9.6184890e-3));
    p = hn::MulAdd(p, f, c(5.5503288e-2));
    p = hn::MulAdd(p, f, c(2.4022647e-1));
    p = hn::MulAdd(p, f, c(6.9314721e-1));
  } else {
    p = hn::MulAdd(c(4.4352809446103361611e-10), f, c(7.0741056262456593708e-9));
    p = hn::MulAdd(p, f, c(1.0178198033328527662e-7));
    p = hn::MulAdd(p, f, c(1.3215433089594629037e-6));
    p = hn::MulAdd(p, f, c(1.52527334899608046e-5));
    p = hn::MulAdd(p, f, c(1.5403530462514613026e-4));
    p = hn::MulAdd(p, f, c(1.3333558146789950323e-3));
    p = hn::MulAdd(p, f, c(9.6181291075883350833e-3));
    p = hn::MulAdd(p, f, c(5.5504108664819921483e-2));
    p = hn::MulAdd(p, f, c(2.4022650695910156205e-1));
    p = hn::MulAdd(p, f, c(6.9314718055994533046e-1));
  }
  p = hn::MulAdd(p, f, hn::Set(d, T{1}));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, static_cast<T>(1 - kBias))), hn::Mul(p, two_to_n));
}

inline constexpr double kLog2E = 1.44269504088896340736;
inline constexpr double kLn2 = 0.693147180559945309417;

#if HWY_TARGET != HWY_SCALAR
// A vector whose block b (16 bytes) comes from row b * (rows a block holds).
template <class D, class T>
HWY_INLINE hn::Vec<D> load_blocks(D d, const T* p, int64_t row_stride) {
  if constexpr (hn::MaxLanes(D()) * sizeof(T) <= 16) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<D> half;
    constexpr int64_t kRows = hn::MaxLanes(D()) / 2;
    return hn::Combine(d, load_blocks(half, p + kRows * row_stride, row_stride),
                       load_blocks(half, p, row_stride));
  }
}
#endif

// out[c][r] = in[r][c] for kLanes rows r (stride in_stride) and 16 bytes of columns c (stride
// out_stride). The rows are dealt over the blocks when they are loaded, so that what is left is
// transposing within blocks.
template <class T>
HWY_INLINE void transpose_columns(const T* in, int64_t in_stride, T* out, int64_t out_stride) {
#if HWY_TARGET == HWY_SCALAR
  static_assert(kLanes<T> == 1);
  for (size_t c = 0; c < 16 / sizeof(T); ++c) out[c * out_stride] = in[c];
  (void)in_stride;
#else
  const Tag<T> d;
  if constexpr (sizeof(T) == 4) {
    const hn::Repartition<double, Tag<T>> pairs;
    const auto row = [&](int r) HWY_ATTR { return load_blocks(d, in + r * in_stride, in_stride); };
    const auto a = row(0), b = row(1), e = row(2), f = row(3);
    const auto ab_low = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
    const auto ab_high = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
    const auto ef_low = hn::BitCast(pairs, hn::InterleaveLower(d, e, f));
    const auto ef_high = hn::BitCast(pairs, hn::InterleaveUpper(d, e, f));
    const auto store = [&](auto v, int c)
                           HWY_ATTR { hn::StoreU(hn::BitCast(d, v), d, out + c * out_stride); };
    store(hn::InterleaveLower(pairs, ab_low, ef_low), 0);
    store(hn::InterleaveUpper(pairs, ab_low, ef_low), 1);
    store(hn::InterleaveLower(pairs, ab_high, ef_high), 2);
    store(hn::InterleaveUpper(pairs, ab_high, ef_high), 3);
  } else {
    const auto a = load_blocks(d, in, in_stride), b = load_blocks(d, in + in_stride, in_stride);
    hn::StoreU(hn::InterleaveLower(d, a, b), d, out);
    hn::StoreU(hn::InterleaveUpper(d, a, b), d, out + out_stride);
  }
#endif
}

// The tile product: c[kRows x 2 kLanes] += a[kRows x inner] b[inner x 2 kLanes], all of c in
// registers. a lies by rows (a_stride apart), or transposed: the kRows elements of a column side by
// side and the columns a_stride apart.
enum class Lies { by_rows, transposed };

template <Lies kLies, int kRows, class T>
HWY_INLINE void multiply_add(int64_t inner, const T* a, int64_t a_stride, const T* b,
                             int64_t b_stride, Vec<T> (&c)[kRows][2]) {
  const Tag<T> d;
  for (int64_t k = 0; k < inner; ++k, b += b_stride) {
    const Vec<T> b0 = hn::LoadU(d, b), b1 = hn::LoadU(d, b + kLanes<T>);
    TRIREME_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const T* element = kLies == Lies::by_rows ? a + r * a_stride + k : a + k * a_stride + r;
      const Vec<T> x = hn::Set(d, *element);
      c[r][0] = hn::MulAdd(x, b0, c[r][0]);
      c[r][1] = hn::MulAdd(x, b1, c[r][1]);
    }
  }
}

// What a tile is high: 12 accumulators, two vectors of b and a broadcast fill AVX2's 16 registers,
// and 12 chains hide the latency of two multiply-adds a cycle.
inline constexpr int kTileRows = 6;

// Cuts [begin, end) into tiles of kTileRows rows and what is left into 4, 2, 1: calls
// body.template operator()<rows>(first row). Tiles of two such cuts with one begin line up.
template <class Body>
HWY_INLINE void for_each_tile(int64_t begin, int64_t end, Body&& body) {
  int64_t row = begin;
  for (; row + kTileRows <= end; row += kTileRows) body.template operator()<kTileRows>(row);
  if (row + 4 <= end) body.template operator()<4>(row), row += 4;
  if (row + 2 <= end) body.template operator()<2>(row), row += 2;
  if (row < end) body.template operator()<1>(row);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace trireme::kernel::simd
HWY_AFTER_NAMESPACE();

#endif  // TRIREME_KERNEL_SIMD_VECTOR_INL_H_
