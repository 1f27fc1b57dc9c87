#include "fabric/reduce.h"

#include <c10/util/Half.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace trireme {
namespace {

constexpr int64_t kBlock = 512;  // elements: the accumulators take 4 KB at most

// How a stored element becomes the number that is summed, and back.
template <class T>
struct Plain {
  using Stored = T;
  using Sum = T;
  static Sum load(Stored x) { return x; }
  static Stored store(Sum x) { return x; }
};

struct Bf16 {
  using Stored = uint16_t;
  using Sum = float;
  static Sum load(Stored x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }
  static Stored store(Sum x) {  // to nearest, ties to even
    const auto bits = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return static_cast<Stored>(x != x ? 0x7fc0 : rounded);
  }
};

struct Fp16 {
  using Stored = c10::Half;
  using Sum = float;
  static Sum load(Stored x) { return x; }
  static Stored store(Sum x) { return x; }
};

struct Add {
  template <class Sum>
  static Sum apply(Sum a, Sum b) {
    return a + b;
  }
};

struct Max {
  template <class Sum>
  static Sum apply(Sum a, Sum b) {
    return a < b || b != b ? b : a;
  }
};

template <class T>
T* at(std::byte* base, int64_t i) {
  return reinterpret_cast<T*>(base) + i;
}
template <class T>
const T* at(const std::byte* base, int64_t i) {
  return reinterpret_cast<const T*>(base) + i;
}

// Elements [begin, begin + n) of all sources into `sums`. `Count` is an integral_constant for whole
// blocks, so that the compiler unrolls and vectorizes without a flag of its own.
template <class In, class Combine, class Count>
void gather_block(std::span<const std::byte* const> sources, int64_t begin, Count n,
                  typename In::Sum* sums) {
  using Stored = typename In::Stored;
  const Stored* first = at<Stored>(sources[0], begin);
  for (int64_t i = 0; i < n; ++i) sums[i] = In::load(first[i]);
  for (const std::byte* source : sources.subspan(1)) {
    const Stored* next = at<Stored>(source, begin);
    for (int64_t i = 0; i < n; ++i) sums[i] = Combine::apply(sums[i], In::load(next[i]));
  }
}

template <class Out, bool accumulate, class Sum, class Count>
void store_block(const Sum* sums, Count n, typename Out::Stored* to) {
  for (int64_t i = 0; i < n; ++i)
    to[i] = Out::store(accumulate ? static_cast<typename Out::Sum>(Out::load(to[i]) + sums[i])
                                  : sums[i]);
}

template <class In, class Out, class Combine, bool accumulate>
void reduce(std::span<const std::byte* const> sources, std::span<std::byte* const> destinations,
            int64_t numel) {
  alignas(64) typename In::Sum sums[kBlock];
  using Stored = typename Out::Stored;
  const auto block = [&](int64_t begin, auto n) {
    gather_block<In, Combine>(sources, begin, n, sums);
    Stored* first = at<Stored>(destinations[0], begin);
    store_block<Out, accumulate>(sums, n, first);
    for (std::byte* other : destinations.subspan(1))
      std::memcpy(at<Stored>(other, begin), first, static_cast<size_t>(n) * sizeof(Stored));
  };
  int64_t begin = 0;
  for (; begin + kBlock <= numel; begin += kBlock)
    block(begin, std::integral_constant<int64_t, kBlock>());
  if (begin < numel) block(begin, numel - begin);
}

template <class Visit>
void visit_element(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::float64:
      return visit(Plain<double>());
    case DType::float32:
      return visit(Plain<float>());
    case DType::bfloat16:
      return visit(Bf16());
    case DType::float16:
      return visit(Fp16());
    case DType::int64:
      return visit(Plain<uint64_t>());  // unsigned, because sums wrap
    case DType::int32:
      return visit(Plain<uint32_t>());
    default:
      TRIREME_ASSERT(false, "no sum of ", name_of(dtype));
  }
}

}  // namespace

bool can_reduce(DType dtype) {
  switch (dtype) {
    case DType::float64:
    case DType::float32:
    case DType::bfloat16:
    case DType::float16:
    case DType::int64:
    case DType::int32:
      return true;
    default:
      return false;
  }
}

void sum_in_order(DType dtype, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations, int64_t numel) {
  visit_element(dtype, [&]<class E>(E) { reduce<E, E, Add, false>(sources, destinations, numel); });
}

void max_in_order(DType dtype, std::span<const std::byte* const> sources,
                  std::span<std::byte* const> destinations, int64_t numel) {
  if (dtype == DType::int64)
    return reduce<Plain<int64_t>, Plain<int64_t>, Max, false>(sources, destinations, numel);
  if (dtype == DType::int32)
    return reduce<Plain<int32_t>, Plain<int32_t>, Max, false>(sources, destinations, numel);
  visit_element(dtype, [&]<class E>(E) { reduce<E, E, Max, false>(sources, destinations, numel); });
}

void sum_in_order_to(DType dtype, std::span<const std::byte* const> sources, DType out,
                     std::byte* destination, int64_t numel, bool accumulate) {
  const auto run = [&]<class In, class Out>(In, Out) {
    const std::span<std::byte* const> to(&destination, 1);
    accumulate ? reduce<In, Out, Add, true>(sources, to, numel)
               : reduce<In, Out, Add, false>(sources, to, numel);
  };
  visit_element(dtype, [&]<class In>(In in) {
    if (out == dtype) return run(in, in);
    TRIREME_ASSERT(out == DType::float32, "a sum of ", name_of(dtype), " into ", name_of(out));
    if constexpr (std::is_same_v<typename In::Sum, float>) run(in, Plain<float>());
    else TRIREME_ASSERT(false, "a sum of ", name_of(dtype), " into fp32");
  });
}

}  // namespace trireme
