// Attention without a pass of its own for RoPE, scaling, transposing or masking: all of it happens
// while operands are packed, once a key/value head for its whole group of query heads.
//
// Forward, six queries at a time: their scores with the keys they may see go to a strip of six rows
// that stays in L1, the row's maximum in registers; exp2 and sum over the strip; strip times V,
// whose inner length is exactly what the causal mask leaves. Documents longer than kForwardKeys are
// taken in blocks of so many keys, which stay in L2 for kForwardBlock queries; a row's maximum, sum
// and output are carried from block to block. Scores carry log2(e), so the softmax is exp2, and lse
// is in base 2.
//
// Backward, blocks of kBlock queries, and for each blocks of kKeyBlock keys, so that all it touches
// stays in L2 however long the document is: probabilities P = exp2(s - lse) and score gradients dS
// = P (dP - delta) by tiles of six queries, dQ += dS K at once; then, by tiles of six keys, dV +=
// P^T dO and dK += dS^T Q over the block's queries. delta = sum(dO * O) a row.
//
// All seven products are multiply_add. Its right operand is two vectors wide: keys (and in backward
// values) are packed as panels [keys / 2 kLanes][head_dim][2 kLanes], the others by rows, padded
// with zeros to a multiple of two vectors.
//
// A window hides keys far behind: tiles begin at the first panel that one of their rows may see, so
// that the cost follows the window. A soft-cap bends the scores before the softmax; its derivative
// waits where dS will stand.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/simd/attention.cc"
#include "kernel/simd/targets.h"

#include <hwy/foreach_target.h>

#include "kernel/simd/attention.h"
#include "kernel/simd/both.h"
#include "kernel/simd/vector-inl.h"

#include <hwy/contrib/math/math-inl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace trireme::kernel::simd {
namespace HWY_NAMESPACE {
namespace {

// Queries and keys of a block of forward. Multiples of kTileRows and of every panel.
constexpr int64_t kForwardBlock = 96;
constexpr int64_t kForwardKeys = 1024;

// Queries of a block of backward: P and dS of it stay in L2. A multiple of kTileRows.
constexpr int64_t kBlock = 48;

// Keys of a block of backward. A multiple of kTileRows, so that tiles of keys line up with those of
// queries, and of every panel.
constexpr int64_t kKeyBlock = 192;

template <class T>
constexpr int64_t kPanel = 2 * kLanes<T>;

constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Hands out 64-byte aligned pieces of the caller's scratch; with none, counts.
template <class T>
class Scratch {
 public:
  explicit Scratch(T* begin) : begin_(begin) {}
  T* take(int64_t numel) {
    T* piece = begin_ ? begin_ + used_ : nullptr;
    used_ += round_up(numel, 64 / sizeof(T));
    return piece;
  }
  int64_t used() const { return used_; }

 private:
  T* begin_;
  int64_t used_ = 0;
};

// A strip's row is one panel longer than the keys need, so that rows are not a power of two apart:
// those would meet in the same cache sets when a column is read.
template <class T>
int64_t strip_stride(int64_t keys) {
  return round_up(keys, kPanel<T>) + kPanel<T>;
}

// What the keys so far have left of a query's row, beside its output: the greatest score, and the
// sum of exp2(score - greatest).
template <class T>
struct SoFar {
  T maximum, sum;
};

template <class T>
struct ForwardScratch {
  T *panels, *values, *queries, *unscaled, *strip, *staging;
  SoFar<T>* so_far;
  int64_t width, strip_stride;

  ForwardScratch(Scratch<T>& scratch, int64_t keys, int64_t head_dim)
      : width(round_up(head_dim, kPanel<T>)),
        strip_stride(HWY_NAMESPACE::strip_stride<T>(std::min(kForwardKeys, keys))) {
    const int64_t block = std::min(kForwardBlock, round_up(keys, kTileRows));
    panels = scratch.take(round_up(keys, kPanel<T>) * head_dim);
    values = scratch.take(keys * width);
    queries = scratch.take(block * width);
    unscaled = scratch.take(block * width);
    strip = scratch.take(kTileRows * strip_stride);
    staging = scratch.take(kPanel<T> * width);
    so_far = reinterpret_cast<SoFar<T>*>(scratch.take(2 * block));
  }
};

template <class T>
struct BackwardScratch {
  T *key_panels, *value_panels, *keys, *d_keys, *d_values;
  T *queries, *d_out, *delta, *p, *ds, *d_queries, *staging;
  int64_t width, strip_stride;

  BackwardScratch(Scratch<T>& scratch, int64_t rows, int64_t head_dim)
      : width(round_up(head_dim, kPanel<T>)),
        strip_stride(HWY_NAMESPACE::strip_stride<T>(std::min(kKeyBlock, rows))) {
    const int64_t block = std::min(kBlock, rows);
    key_panels = scratch.take(round_up(rows, kPanel<T>) * head_dim);
    value_panels = scratch.take(round_up(rows, kPanel<T>) * head_dim);
    keys = scratch.take(rows * width);
    d_keys = scratch.take(rows * width);
    d_values = scratch.take(rows * width);
    queries = scratch.take(block * width);
    d_out = scratch.take(block * width);
    delta = scratch.take(block);
    p = scratch.take(block * strip_stride);
    ds = scratch.take(block * strip_stride);
    d_queries = scratch.take(block * width);
    staging = scratch.take(kPanel<T> * width);
  }
};

// out = scale * rotation(row) of one head's row, or the transposed rotation: the gradient's.
template <bool kTransposed, class T>
HWY_INLINE void turn_row(const Rotation<T>& rotation, int64_t row, const T* x, int64_t head_dim,
                         double scale, T* out) {
  const Tag<T> d;
  const int64_t half = rotation.half;
  const Vec<T> factor = hn::Set(d, static_cast<T>(scale));
  if (half > 0) {
    const T* cos = rotation.cos + rotation.positions[row] * half;
    const T* sin = rotation.sin + rotation.positions[row] * half;
    for_each_vector<T>(half, [&](auto load, auto store) HWY_ATTR {
      const Vec<T> x1 = hn::Mul(load(x), factor), x2 = hn::Mul(load(x + half), factor);
      const Vec<T> c = load(cos), s = kTransposed ? hn::Neg(load(sin)) : load(sin);
      store(hn::MulSub(x1, c, hn::Mul(x2, s)), out);
      store(hn::MulAdd(x2, c, hn::Mul(x1, s)), out + half);
    });
  }
  const int64_t turned = 2 * half;
  for_each_vector<T>(head_dim - turned, [&](auto load, auto store) HWY_ATTR {
    store(hn::Mul(load(x + turned), factor), out + turned);
  });
}

// The row of a head in qkv: head counts queries, then keys, then values.
template <class T>
const T* head_row(const AttentionRows<T>& in, int64_t row, int64_t head) {
  return in.qkv + (row * (in.heads + 2 * in.kv_heads) + head) * in.head_dim;
}

template <class T>
int64_t row_stride(const AttentionRows<T>& in) {
  return (in.heads + 2 * in.kv_heads) * in.head_dim;
}

// Scores carry log2(e), and so does what bends them. 0: nothing does.
template <class T>
T cap_of(const AttentionRows<T>& in) {
  return static_cast<T>(in.softcap * kLog2E);
}

template <class T>
HWY_INLINE void copy_row(const T* from, int64_t head_dim, T* to) {
  std::memcpy(to, from, head_dim * sizeof(T));
}

// panel[c][r] = rows[r][c] for r < kPanel, c < head_dim.
template <class T>
HWY_INLINE void transpose_panel(const T* rows, int64_t stride, int64_t head_dim, T* panel) {
  constexpr int64_t kColumns = 16 / sizeof(T);
  int64_t c = 0;
  for (; c + kColumns <= head_dim; c += kColumns)
    for (int64_t r = 0; r < kPanel<T>; r += kLanes<T>)
      transpose_columns(rows + r * stride + c, stride, panel + c * kPanel<T> + r, kPanel<T>);
  for (; c < head_dim; ++c)
    for (int64_t r = 0; r < kPanel<T>; ++r) panel[c * kPanel<T> + r] = rows[r * stride + c];
}

// Panels of `rows` rows; load_row(row, to) writes one. Rows behind the last are zero.
template <class T, class LoadRow>
HWY_INLINE void pack_panels(int64_t rows, int64_t head_dim, int64_t width, T* staging, T* panels,
                            LoadRow&& load_row) {
  for (int64_t row = 0; row < rows; row += kPanel<T>, panels += kPanel<T> * head_dim) {
    const int64_t n = std::min(kPanel<T>, rows - row);
    for (int64_t r = 0; r < n; ++r) load_row(row + r, staging + r * width);
    if (n < kPanel<T>) std::memset(staging + n * width, 0, (kPanel<T> - n) * width * sizeof(T));
    transpose_panel(staging, width, head_dim, panels);
  }
}

// Writes row by row into `to` (stride width), zeros behind head_dim.
template <class T, class LoadRow>
HWY_INLINE void pack_rows(int64_t rows, int64_t head_dim, int64_t width, T* to,
                          LoadRow&& load_row) {
  for (int64_t row = 0; row < rows; ++row, to += width) {
    load_row(row, to);
    if (width > head_dim) std::memset(to + head_dim, 0, (width - head_dim) * sizeof(T));
  }
}

template <int kRows, class T>
HWY_INLINE void copy_tile(const Vec<T> (&from)[kRows][2], Vec<T> (&to)[kRows][2]) {
  TRIREME_UNROLL
  for (int r = 0; r < kRows; ++r) to[r][0] = from[r][0], to[r][1] = from[r][1];
}

template <int kRows, class T>
HWY_INLINE void set_zero(Vec<T> (&c)[kRows][2]) {
  TRIREME_UNROLL
  for (int r = 0; r < kRows; ++r) c[r][0] = c[r][1] = hn::Zero(Tag<T>());
}

// A tile's panel of scores becomes cap tanh(score / cap); slopes, unless null, gets the derivative,
// 1 - tanh^2. Through memory, and apart from the loops, which most models run without it.
template <int kRows, class T>
HWY_NOINLINE void bend(T cap, Vec<T> (&c)[kRows][2], T* slopes, int64_t stride) {
  const Tag<T> d;
  const Vec<T> whole = hn::Set(d, cap), part = hn::Set(d, 1 / cap), one = hn::Set(d, T{1});
  for (int r = 0; r < kRows; ++r)
    for (int half = 0; half < 2; ++half) {
      const Vec<T> t = hn::Tanh(d, hn::Mul(c[r][half], part));
      c[r][half] = hn::Mul(whole, t);
      if (slopes) hn::Store(hn::NegMulAdd(t, t, one), d, slopes + r * stride + half * kLanes<T>);
    }
}

// The scores of a panel of keys that lie by rows, `n` of them there: a key that is read once is not
// worth packing. Through memory and apart from the loops, as above.
template <int kRows, class T>
HWY_NOINLINE void score_rows(const T* keys, int64_t n, int64_t head_dim, const T* queries,
                             int64_t width, Vec<T> (&c)[kRows][2]) {
  const Tag<T> d;
  HWY_ALIGN T scores[kRows][kPanel<T>] = {};
  for (int64_t key = 0; key < n; ++key, keys += head_dim) {
    Vec<T> sums[kRows];
    TRIREME_UNROLL
    for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(d);
    for_each_vector<T>(head_dim, [&](auto load, auto) HWY_ATTR {
      const Vec<T> k = load(keys);
      TRIREME_UNROLL
      for (int r = 0; r < kRows; ++r) sums[r] = hn::MulAdd(k, load(queries + r * width), sums[r]);
    });
    TRIREME_UNROLL
    for (int r = 0; r < kRows; ++r) scores[r][key] = sum_of_lanes<T>(sums[r]);
  }
  for (int r = 0; r < kRows; ++r)
    for (int half = 0; half < 2; ++half) c[r][half] = hn::Load(d, scores[r] + half * kLanes<T>);
}

template <class T>
struct PanelMask {
  hn::Mask<Tag<T>> low, high;
};

// Row r of a tile sees the keys up to limit + r * step, of those the last `window`.
template <class T>
struct Visible {
  int64_t limit, step, window;

  // The first panel that some row of this tile, or of one that begins up to a tile earlier, sees.
  int64_t first_panel() const {
    return std::max<int64_t>(0, limit - window + 2 - kTileRows) / kPanel<T> * kPanel<T>;
  }

  // Whether every one of `rows` rows sees all of the panel that starts at `key`.
  bool all(int64_t key, int rows) const {
    return key + kPanel<T> - 1 <= limit && key > limit + (rows - 1) * step - window;
  }

  HWY_INLINE PanelMask<T> of_panel(int r, int64_t key) const {
    const Tag<T> d;
    const int64_t end = limit + r * step - key;
    const Vec<T> last = hn::Set(d, static_cast<T>(std::min(end, kPanel<T>)));
    const Vec<T> hidden = hn::Set(d, static_cast<T>(std::max<int64_t>(end - window, -1)));
    const auto seen = [&](int64_t lane) HWY_ATTR {
      const Vec<T> place = hn::Iota(d, static_cast<T>(lane));
      return hn::And(hn::Le(place, last), hn::Gt(place, hidden));
    };
    return {seen(0), seen(kLanes<T>)};
  }
};

// Turns a strip of scores into exp2(score - row's maximum); returns the row's sum.
template <class T>
HWY_INLINE T exponentiate(T* row, int64_t begin, int64_t keys, T maximum) {
  const Tag<T> d;
  const Vec<T> m = hn::Set(d, maximum);
  Vec<T> sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  for (int64_t j = begin; j < keys; j += kPanel<T>) {
    const Vec<T> e0 = exp2<T>(hn::Sub(hn::Load(d, row + j), m));
    const Vec<T> e1 = exp2<T>(hn::Sub(hn::Load(d, row + j + kLanes<T>), m));
    hn::Store(e0, d, row + j);
    hn::Store(e1, d, row + j + kLanes<T>);
    sum0 = hn::Add(sum0, e0);
    sum1 = hn::Add(sum1, e1);
  }
  return sum_of_lanes<T>(hn::Add(sum0, sum1));
}

// The first n of a panel's two vectors.
template <class T>
HWY_INLINE void store_panel(Vec<T> c0, Vec<T> c1, T* p, int64_t n) {
  const Tag<T> d;
  if (n >= kPanel<T>) {
    hn::StoreU(c0, d, p);
    hn::StoreU(c1, d, p + kLanes<T>);
  } else if (n > kLanes<T>) {
    hn::StoreU(c0, d, p);
    store_some(c1, p + kLanes<T>, n - kLanes<T>);
  } else {
    store_some(c0, p, n);
  }
}

// A tile of queries against keys.
template <class T>
struct ForwardTile {
  const T* queries;          // [rows, head_dim] at stride width, scaled
  const T *panels, *values;  // the keys as panels, or by rows in `keys`
  int64_t head_dim, width, values_stride;
  T* strip;
  int64_t strip_stride;
  T* out;
  int64_t out_stride;
  T* lse;            // of row r at lse[r]; null: not wanted
  T cap;             // of the scores; 0: none
  T* unscaled;       // out at stride width, between blocks of keys
  SoFar<T>* so_far;  // of row r, between blocks of keys
  const T* keys = nullptr;
};

// The tile's part in the keys block_begin … block_end - 1. Blocks come in order; the last one that
// a row of the tile sees writes out and lse.
template <int kRows, class T>
void forward_tile(const ForwardTile<T>& tile, Visible<T> visible, int64_t block_begin,
                  int64_t block_end) {
  const Tag<T> d;
  const int64_t seen = visible.first_panel(), end = visible.limit + (kRows - 1) * visible.step + 1;
  const int64_t begin = std::max(seen, block_begin), keys = std::min(end, block_end);
  if (begin >= keys) return;
  const bool first = begin == seen, last = keys == end;
  constexpr T kNothing = -std::numeric_limits<T>::infinity();
  const Vec<T> hidden = hn::Set(d, kNothing);
  T* strip = tile.strip - begin;  // by key
  Vec<T> maximum[kRows];
  TRIREME_UNROLL
  for (int r = 0; r < kRows; ++r) maximum[r] = hidden;
  for (int64_t key = begin; key < keys; key += kPanel<T>) {
    Vec<T> c[kRows][2];
    if (tile.keys) {
      Vec<T> scores[kRows][2];
      score_rows<kRows, T>(tile.keys + key * tile.head_dim, std::min(kPanel<T>, end - key),
                           tile.head_dim, tile.queries, tile.width, scores);
      copy_tile<kRows, T>(scores, c);
    } else {
      set_zero<kRows, T>(c);
      multiply_add<Lies::by_rows, kRows>(tile.head_dim, tile.queries, tile.width,
                                         tile.panels + key * tile.head_dim, kPanel<T>, c);
    }
    if (tile.cap > 0) {
      Vec<T> bent[kRows][2];
      copy_tile<kRows, T>(c, bent);
      bend<kRows, T>(tile.cap, bent, nullptr, 0);
      copy_tile<kRows, T>(bent, c);
    }
    if (!visible.all(key, kRows)) {
      TRIREME_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto mask = visible.of_panel(r, key);
        c[r][0] = hn::IfThenElse(mask.low, c[r][0], hidden);
        c[r][1] = hn::IfThenElse(mask.high, c[r][1], hidden);
      }
    }
    TRIREME_UNROLL
    for (int r = 0; r < kRows; ++r) {
      maximum[r] = hn::Max(maximum[r], hn::Max(c[r][0], c[r][1]));
      hn::Store(c[r][0], d, strip + r * tile.strip_stride + key);
      hn::Store(c[r][1], d, strip + r * tile.strip_stride + key + kLanes<T>);
    }
  }
  T carried[kRows], inverse[kRows];
  for (int r = 0; r < kRows; ++r) {
    SoFar<T>& row = tile.so_far[r];
    const T before = first ? kNothing : row.maximum;
    row.maximum = std::max(before, max_of_lanes<T>(maximum[r]));
    // A window may hide this block, and those before, from single rows of a tile.
    const T m = row.maximum == kNothing ? 0 : row.maximum;
    const T sum = exponentiate(strip + r * tile.strip_stride, begin, keys, m);
    carried[r] = first ? 0 : std::exp2(before - m);
    row.sum = first ? sum : row.sum * carried[r] + sum;
    inverse[r] = 1 / row.sum;
    if (last && tile.lse) tile.lse[r] = m + std::log2(row.sum);
  }
  for (int64_t column = 0; column < tile.head_dim; column += kPanel<T>) {
    Vec<T> c[kRows][2];
    set_zero<kRows, T>(c);
    if (!first) {
      TRIREME_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const T* from = tile.unscaled + r * tile.width + column;
        c[r][0] = hn::Mul(hn::Load(d, from), hn::Set(d, carried[r]));
        c[r][1] = hn::Mul(hn::Load(d, from + kLanes<T>), hn::Set(d, carried[r]));
      }
    }
    multiply_add<Lies::by_rows, kRows>(keys - begin, strip + begin, tile.strip_stride,
                                       tile.values + begin * tile.values_stride + column,
                                       tile.values_stride, c);
    TRIREME_UNROLL
    for (int r = 0; r < kRows; ++r) {
      if (last) {
        const Vec<T> factor = hn::Set(d, inverse[r]);
        store_panel<T>(hn::Mul(c[r][0], factor), hn::Mul(c[r][1], factor),
                       tile.out + r * tile.out_stride + column, tile.head_dim - column);
      } else {
        hn::Store(c[r][0], d, tile.unscaled + r * tile.width + column);
        hn::Store(c[r][1], d, tile.unscaled + r * tile.width + column + kLanes<T>);
      }
    }
  }
}

template <int kRows, class T>
void forward_all_keys(const ForwardTile<T>& tile, Visible<T> visible) {
  const int64_t end = visible.limit + (kRows - 1) * visible.step + 1;
  for (int64_t key = visible.first_panel() / kForwardKeys * kForwardKeys; key < end;
       key += kForwardKeys)
    forward_tile<kRows, T>(tile, visible, key, key + kForwardKeys);
}

template <class T>
int64_t forward_scratch(int64_t rows, int64_t head_dim) {
  Scratch<T> scratch(nullptr);
  ForwardScratch<T>(scratch, rows, head_dim);
  return scratch.used();
}

// The block of queries of one head that starts at row `begin`, against the packed keys and values.
template <class T>
void forward_block(const AttentionRows<T>& in, const ForwardScratch<T>& s, int64_t head,
                   int64_t begin, T* out, T* lse) {
  const int64_t end = std::min(in.rows, begin + kForwardBlock), stride = in.heads * in.head_dim;
  for (int64_t row = begin; row < end; ++row)
    turn_row<false>(in.rotation, row, head_row(in, row, head), in.head_dim, in.scale * kLog2E,
                    s.queries + (row - begin) * s.width);
  const int64_t seen = Visible<T>{begin, 1, in.window}.first_panel();
  for (int64_t key = seen / kForwardKeys * kForwardKeys; key < end; key += kForwardKeys)
    for_each_tile(begin, end, [&]<int kRows>(int64_t row) HWY_ATTR {
      const int64_t r = row - begin;
      forward_tile<kRows, T>(
          {s.queries + r * s.width, s.panels, s.values, in.head_dim, s.width, s.width, s.strip,
           s.strip_stride, out + row * stride + head * in.head_dim, stride, lse + row, cap_of(in),
           s.unscaled + r * s.width, s.so_far + r},
          {row, 1, in.window}, key, key + kForwardKeys);
    });
}

template <class T>
void forward(const AttentionRows<T>& in, T* out, T* lse, int64_t lse_stride, T* memory) {
  Scratch<T> scratch(memory);
  const ForwardScratch<T> s(scratch, in.rows, in.head_dim);
  const int64_t group = in.heads / in.kv_heads;
  for (int64_t kv = 0; kv < in.kv_heads; ++kv) {
    pack_panels(
        in.rows, in.head_dim, s.width, s.staging, s.panels, [&](int64_t row, T* to) HWY_ATTR {
          turn_row<false>(in.rotation, row, head_row(in, row, in.heads + kv), in.head_dim, 1, to);
        });
    pack_rows(in.rows, in.head_dim, s.width, s.values, [&](int64_t row, T* to) HWY_ATTR {
      copy_row(head_row(in, row, in.heads + in.kv_heads + kv), in.head_dim, to);
    });
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head)
      for (int64_t begin = 0; begin < in.rows; begin += kForwardBlock)
        forward_block(in, s, head, begin, out, lse + head * lse_stride);
  }
}

template <class T>
void forward_cached(const CachedRows<T>& in, T* out, T* memory) {
  const AttentionRows<T>& fresh = in.fresh;
  const int64_t head_dim = fresh.head_dim;
  // Places count from the first that the window leaves.
  const int64_t hidden = Visible<T>{in.cached, 1, fresh.window}.first_panel();
  const int64_t cached = in.cached - hidden, keys = cached + fresh.rows;
  const int64_t group = fresh.heads / fresh.kv_heads, stride = fresh.heads * head_dim;
  Scratch<T> scratch(memory);
  const ForwardScratch<T> s(scratch, keys, head_dim);
  const auto load_query = [&](int64_t row, int64_t head, int r) HWY_ATTR {
    turn_row<false>(fresh.rotation, row, head_row(fresh, row, head), head_dim, fresh.scale * kLog2E,
                    s.queries + r * s.width);
  };
  for (int64_t kv = in.kv_begin; kv < in.kv_end; ++kv) {
    T* cached_keys = in.keys + (kv * in.capacity + hidden) * head_dim;
    T* cached_values = in.values + (kv * in.capacity + hidden) * head_dim;
    for (int64_t row = 0; row < fresh.rows; ++row) {
      turn_row<false>(fresh.rotation, row, head_row(fresh, row, fresh.heads + kv), head_dim, 1,
                      cached_keys + (cached + row) * head_dim);
      copy_row(head_row(fresh, row, fresh.heads + fresh.kv_heads + kv), head_dim,
               cached_values + (cached + row) * head_dim);
    }
    if (fresh.rows > 1)
      pack_panels(keys, head_dim, s.width, s.staging, s.panels, [&](int64_t row, T* to) HWY_ATTR {
        copy_row(cached_keys + row * head_dim, head_dim, to);
      });
    const bool padded = s.width != head_dim;  // then values lie too close for whole vectors
    if (padded)
      pack_rows(keys, head_dim, s.width, s.values, [&](int64_t row, T* to) HWY_ATTR {
        copy_row(cached_values + row * head_dim, head_dim, to);
      });
    const ForwardTile<T> tile{s.queries,  s.panels,       padded ? s.values : cached_values,
                              head_dim,   s.width,        s.width,
                              s.strip,    s.strip_stride, nullptr,
                              stride,     nullptr,        cap_of(fresh),
                              s.unscaled, s.so_far};
    // One new token: the group's heads share a tile. More: a head's tokens do.
    if (fresh.rows == 1) {
      for_each_tile(kv * group, (kv + 1) * group, [&]<int kRows>(int64_t head) HWY_ATTR {
        for (int r = 0; r < kRows; ++r) load_query(0, head + r, r);
        ForwardTile<T> heads = tile;
        heads.out = out + head * head_dim;
        heads.out_stride = head_dim;
        heads.keys = cached_keys;
        forward_all_keys<kRows, T>(heads, {cached, 0, fresh.window});
      });
      continue;
    }
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head)
      for_each_tile(0, fresh.rows, [&]<int kRows>(int64_t row) HWY_ATTR {
        for (int r = 0; r < kRows; ++r) load_query(row + r, head, r);
        ForwardTile<T> tokens = tile;
        tokens.out = out + row * stride + head * head_dim;
        forward_all_keys<kRows, T>(tokens, {cached + row, 1, fresh.window});
      });
  }
}

// to[kRows x width] += a b, with a [kRows x n], or its transpose, at stride a_stride; b [n x
// width].
template <Lies kLies, int kRows, class T>
HWY_INLINE void add_product(int64_t n, const T* a, int64_t a_stride, const T* b, int64_t width,
                            T* to) {
  const Tag<T> d;
  for (int64_t column = 0; column < width; column += kPanel<T>) {
    Vec<T> c[kRows][2];
    TRIREME_UNROLL
    for (int i = 0; i < kRows; ++i) {
      c[i][0] = hn::Load(d, to + i * width + column);
      c[i][1] = hn::Load(d, to + i * width + column + kLanes<T>);
    }
    multiply_add<kLies, kRows>(n, a, a_stride, b + column, width, c);
    TRIREME_UNROLL
    for (int i = 0; i < kRows; ++i) {
      hn::Store(c[i][0], d, to + i * width + column);
      hn::Store(c[i][1], d, to + i * width + column + kLanes<T>);
    }
  }
}

// P and dS of kRows queries from `row` on, which stand in the block from `r` on, with the keys of a
// block that they see; d_queries += dQ without the scale.
template <int kRows, class T>
void backward_queries(const BackwardScratch<T>& s, const AttentionRows<T>& in, int64_t row,
                      int64_t r, int64_t key_block, const T* lse) {
  const Tag<T> d;
  const int64_t head_dim = in.head_dim, keys = std::min(row + kRows, key_block + kKeyBlock);
  const Visible<T> visible{row, 1, in.window};
  const T cap = cap_of(in);
  const int64_t begin = std::max(visible.first_panel(), key_block);
  if (begin >= keys) return;
  T* p = s.p + r * s.strip_stride - key_block;  // by key
  T* ds = s.ds + r * s.strip_stride - key_block;
  for (int64_t key = begin; key < keys; key += kPanel<T>) {
    Vec<T> c[kRows][2];
    set_zero<kRows, T>(c);
    multiply_add<Lies::by_rows, kRows>(head_dim, s.queries + r * s.width, s.width,
                                       s.key_panels + key * head_dim, kPanel<T>, c);
    if (cap > 0) {
      Vec<T> bent[kRows][2];
      copy_tile<kRows, T>(c, bent);
      bend<kRows, T>(cap, bent, ds + key, s.strip_stride);
      copy_tile<kRows, T>(bent, c);
    }
    TRIREME_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const Vec<T> l = hn::Set(d, lse[i]);
      c[i][0] = exp2<T>(hn::Sub(c[i][0], l));
      c[i][1] = exp2<T>(hn::Sub(c[i][1], l));
    }
    if (!visible.all(key, kRows)) {
      TRIREME_UNROLL
      for (int i = 0; i < kRows; ++i) {
        const auto seen = visible.of_panel(i, key);
        c[i][0] = hn::IfThenElseZero(seen.low, c[i][0]);
        c[i][1] = hn::IfThenElseZero(seen.high, c[i][1]);
      }
    }
    TRIREME_UNROLL
    for (int i = 0; i < kRows; ++i) {
      hn::Store(c[i][0], d, p + i * s.strip_stride + key);
      hn::Store(c[i][1], d, p + i * s.strip_stride + key + kLanes<T>);
    }
    set_zero<kRows, T>(c);
    multiply_add<Lies::by_rows, kRows>(head_dim, s.d_out + r * s.width, s.width,
                                       s.value_panels + key * head_dim, kPanel<T>, c);
    TRIREME_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const Vec<T> delta = hn::Set(d, s.delta[r + i]);
      const T* q = p + i * s.strip_stride + key;
      T* to = ds + i * s.strip_stride + key;
      Vec<T> ds0 = hn::Mul(hn::Load(d, q), hn::Sub(c[i][0], delta));
      Vec<T> ds1 = hn::Mul(hn::Load(d, q + kLanes<T>), hn::Sub(c[i][1], delta));
      if (cap > 0) {
        ds0 = hn::Mul(ds0, hn::Load(d, to));
        ds1 = hn::Mul(ds1, hn::Load(d, to + kLanes<T>));
      }
      hn::Store(ds0, d, to);
      hn::Store(ds1, d, to + kLanes<T>);
    }
  }
  add_product<Lies::by_rows, kRows>(keys - begin, ds + begin, s.strip_stride,
                                    s.keys + begin * s.width, s.width, s.d_queries + r * s.width);
}

// dK and dV of kRows keys from `key` on, by the queries begin … end - 1 of a block. Queries before
// `key` do not see it; those from `key` on, having been tiled alike, have P and dS for all kRows,
// up to the last whose window reaches one of them: first_panel() looks a tile further back for
// that.
template <int kRows, class T>
void backward_keys(const BackwardScratch<T>& s, int64_t window, int64_t key_block, int64_t key,
                   int64_t begin, int64_t end) {
  const int64_t first = std::max(begin, key), r = first - begin;
  const int64_t place = r * s.strip_stride + key - key_block;
  end = std::min(end, key + kRows - 1 + window);
  add_product<Lies::transposed, kRows>(end - first, s.p + place, s.strip_stride,
                                       s.d_out + r * s.width, s.width, s.d_values + key * s.width);
  add_product<Lies::transposed, kRows>(end - first, s.ds + place, s.strip_stride,
                                       s.queries + r * s.width, s.width, s.d_keys + key * s.width);
}

template <class T>
HWY_INLINE T dot(const T* a, const T* b, int64_t n) {
  Vec<T> sum = hn::Zero(Tag<T>());
  for_each_vector<T>(n, [&](auto load, auto) HWY_ATTR { sum = hn::MulAdd(load(a), load(b), sum); });
  return sum_of_lanes<T>(sum);
}

template <class T>
struct BackwardHead {
  const AttentionRows<T>& in;
  const BackwardScratch<T>& s;
  int64_t head;
  const T *out, *lse, *d_out;  // of this head; rows of out and d_out are heads * head_dim apart
  T* d_qkv;
};

// One query head: fills its part of d_qkv and adds to d_keys, d_values.
template <class T>
void backward_head(const BackwardHead<T>& h) {
  const AttentionRows<T>& in = h.in;
  const BackwardScratch<T>& s = h.s;
  const int64_t stride = in.heads * in.head_dim;
  for (int64_t begin = 0; begin < in.rows; begin += kBlock) {
    const int64_t end = std::min(in.rows, begin + kBlock);
    pack_rows(end - begin, in.head_dim, s.width, s.queries, [&](int64_t r, T* to) HWY_ATTR {
      turn_row<false>(in.rotation, begin + r, head_row(in, begin + r, h.head), in.head_dim,
                      in.scale * kLog2E, to);
    });
    pack_rows(end - begin, in.head_dim, s.width, s.d_out, [&](int64_t r, T* to) HWY_ATTR {
      const T* row = h.d_out + (begin + r) * stride;
      copy_row(row, in.head_dim, to);
      s.delta[r] = dot(row, h.out + (begin + r) * stride, in.head_dim);
    });
    std::memset(s.d_queries, 0, (end - begin) * s.width * sizeof(T));
    // From the tile on that holds the first key which the block's first query sees.
    const int64_t seen = std::max<int64_t>(0, begin - in.window + 1) / kTileRows * kTileRows;
    for (int64_t block = seen / kKeyBlock * kKeyBlock; block < end; block += kKeyBlock) {
      for_each_tile(begin, end, [&]<int kRows>(int64_t row) HWY_ATTR {
        backward_queries<kRows, T>(s, in, row, row - begin, block, h.lse + row);
      });
      for_each_tile(std::max(block, seen), std::min(block + kKeyBlock, end),
                    [&]<int kRows>(int64_t key) HWY_ATTR {
                      backward_keys<kRows, T>(s, in.window, block, key, begin, end);
                    });
    }
    for (int64_t row = begin; row < end; ++row)
      turn_row<true>(in.rotation, row, s.d_queries + (row - begin) * s.width, in.head_dim, in.scale,
                     h.d_qkv + row * row_stride(in) + h.head * in.head_dim);
  }
}

template <class T>
int64_t backward_scratch(int64_t rows, int64_t head_dim) {
  Scratch<T> scratch(nullptr);
  BackwardScratch<T>(scratch, rows, head_dim);
  return scratch.used();
}

template <class T>
void backward(const AttentionRows<T>& in, const T* out, const T* lse, int64_t lse_stride,
              const T* d_out, T* d_qkv, T* memory) {
  Scratch<T> scratch(memory);
  const BackwardScratch<T> s(scratch, in.rows, in.head_dim);
  const int64_t group = in.heads / in.kv_heads;
  for (int64_t kv = 0; kv < in.kv_heads; ++kv) {
    const int64_t key_head = in.heads + kv, value_head = key_head + in.kv_heads;
    pack_rows(in.rows, in.head_dim, s.width, s.keys, [&](int64_t row, T* to) HWY_ATTR {
      turn_row<false>(in.rotation, row, head_row(in, row, key_head), in.head_dim, 1, to);
    });
    pack_panels(in.rows, in.head_dim, s.width, s.staging, s.key_panels,
                [&](int64_t row, T* to)
                    HWY_ATTR { copy_row(s.keys + row * s.width, in.head_dim, to); });
    pack_panels(in.rows, in.head_dim, s.width, s.staging, s.value_panels,
                [&](int64_t row, T* to)
                    HWY_ATTR { copy_row(head_row(in, row, value_head), in.head_dim, to); });
    std::memset(s.d_keys, 0, in.rows * s.width * sizeof(T));
    std::memset(s.d_values, 0, in.rows * s.width * sizeof(T));
    for (int64_t head = kv * group; head < (kv + 1) * group; ++head)
      backward_head<T>({in, s, head, out + head * in.head_dim, lse + head * lse_stride,
                        d_out + head * in.head_dim, d_qkv});
    for (int64_t row = 0; row < in.rows; ++row) {
      T* to = d_qkv + row * row_stride(in);
      // The packed queries carry log2(e), and so does the sum over them.
      turn_row<true>(in.rotation, row, s.d_keys + row * s.width, in.head_dim, kLn2,
                     to + key_head * in.head_dim);
      copy_row(s.d_values + row * s.width, in.head_dim, to + value_head * in.head_dim);
    }
  }
}

}  // namespace

template <class T>
AttentionLoops<T> loops_of() {
  return {&forward_scratch<T>, &backward_scratch<T>, &forward<T>, &backward<T>, &forward_cached<T>};
}

Both<AttentionLoops> all_attention_loops() { return {loops_of<float>(), loops_of<double>()}; }

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace trireme::kernel::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace trireme::kernel::simd {

HWY_EXPORT(all_attention_loops);

template <>
AttentionLoops<float> attention_loops() {
  return HWY_DYNAMIC_DISPATCH(all_attention_loops)().of_float;
}

template <>
AttentionLoops<double> attention_loops() {
  return HWY_DYNAMIC_DISPATCH(all_attention_loops)().of_double;
}

}  // namespace trireme::kernel::simd
#endif
