#include "state/convert.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace trireme {
namespace {

// A binary floating type by the widths of its fields, as bits.
template <class Word, int kExponentBits, int kFractionBits>
struct Binary {
  Word bits;

  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr uint64_t kInfinity = ((uint64_t{1} << kExponentBits) - 1) << kFractionBits;

  // Rounds the 53-bit significand to the place value of the last fraction bit. The carry of the
  // rounding runs into the exponent field, up to infinity.
  static Word from_double(double value) {
    constexpr uint64_t kHidden = uint64_t{1} << 52;
    const auto x = std::bit_cast<uint64_t>(value);
    const uint64_t sign = x >> 63 << (kExponentBits + kFractionBits);
    const int raw = static_cast<int>(x >> 52 & 0x7ff);
    const uint64_t fraction = x & (kHidden - 1);
    if (raw == 0x7ff) {
      const uint64_t quiet = uint64_t{1} << (kFractionBits - 1);
      return static_cast<Word>(sign | kInfinity |
                               (fraction ? quiet | fraction >> (52 - kFractionBits) : 0));
    }
    const int exponent = raw - 1023, smallest = 1 - kBias;
    const bool normal = exponent >= smallest;
    const int drop = 52 - kFractionBits + (normal ? 0 : smallest - exponent);
    if (raw == 0 || drop > 53) return static_cast<Word>(sign);  // below half of the least value
    const uint64_t significand = kHidden | fraction;
    const uint64_t rest = significand & ((uint64_t{1} << drop) - 1);
    const uint64_t half = uint64_t{1} << (drop - 1);
    uint64_t result = significand >> drop;
    if (normal) result += static_cast<uint64_t>(exponent + kBias - 1) << kFractionBits;
    if (rest > half || (rest == half && (result & 1))) ++result;
    return static_cast<Word>(sign | std::min(result, kInfinity));
  }

  static double to_double(Word word) {
    const uint64_t x = word;
    const uint64_t sign = x >> (kExponentBits + kFractionBits) << 63;
    const auto raw = static_cast<int>((x & kInfinity) >> kFractionBits);
    const uint64_t fraction = x & ((uint64_t{1} << kFractionBits) - 1);
    if (raw == (1 << kExponentBits) - 1)
      return std::bit_cast<double>(sign | uint64_t{0x7ff} << 52 | fraction << (52 - kFractionBits));
    if (raw == 0) {
      // Subnormal or zero: fraction units of the least value, exact in double.
      const auto least =
          std::bit_cast<double>(static_cast<uint64_t>(1 - kBias - kFractionBits + 1023) << 52);
      const double magnitude = static_cast<double>(fraction) * least;
      return sign ? -magnitude : magnitude;
    }
    return std::bit_cast<double>(sign | static_cast<uint64_t>(raw - kBias + 1023) << 52 |
                                 fraction << (52 - kFractionBits));
  }
};

using Half = Binary<uint16_t, 5, 10>;
using Brain = Binary<uint16_t, 8, 7>;

// How an element is stored, and its value as a double.
template <class T>
struct Native {
  using Stored = T;
  static double load(T value) { return static_cast<double>(value); }
  static T store(double value) { return static_cast<T>(value); }
};
template <class B>
struct Packed {
  using Stored = uint16_t;
  static double load(uint16_t word) { return B::to_double(word); }
  static uint16_t store(double value) { return B::from_double(value); }
};

template <class T>
T load_at(std::span<const std::byte> in, size_t i) {
  T value;
  std::memcpy(&value, in.data() + i * sizeof(T), sizeof(T));
  return value;
}

template <class From, class To>
void convert_all(std::span<const std::byte> in, std::span<std::byte> out) {
  using In = typename From::Stored;
  using Out = typename To::Stored;
  const size_t n = in.size() / sizeof(In);
  for (size_t i = 0; i < n; ++i) {
    const Out value = To::store(From::load(load_at<In>(in, i)));
    std::memcpy(out.data() + i * sizeof(Out), &value, sizeof(Out));
  }
}

void brain_to_float(std::span<const std::byte> in, std::span<std::byte> out) {
  for (size_t i = 0; i < in.size() / 2; ++i) {
    const uint32_t word = static_cast<uint32_t>(load_at<uint16_t>(in, i)) << 16;
    std::memcpy(out.data() + i * 4, &word, 4);
  }
}

void float_to_brain(std::span<const std::byte> in, std::span<std::byte> out) {
  for (size_t i = 0; i < in.size() / 4; ++i) {
    const auto x = load_at<uint32_t>(in, i);
    const bool nan = (x & 0x7fffffff) > 0x7f800000;
    const uint32_t rounded = (x + 0x7fff + (x >> 16 & 1)) >> 16, quiet = x >> 16 | 0x40;
    const auto word = static_cast<uint16_t>(nan ? quiet : rounded);
    std::memcpy(out.data() + i * 2, &word, 2);
  }
}

// Calls f with the Native or Packed that describes `dtype`.
template <class F>
void with_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float64:
      return f(Native<double>{});
    case DType::float32:
      return f(Native<float>{});
    case DType::bfloat16:
      return f(Packed<Brain>{});
    case DType::float16:
      return f(Packed<Half>{});
    default:
      TRIREME_ASSERT(false, name_of(dtype), " is not floating");
  }
}

template <class F>
void with_any(DType dtype, F&& f) {
  switch (dtype) {
    case DType::int64:
      return f(Native<int64_t>{});
    case DType::int32:
      return f(Native<int32_t>{});
    case DType::int16:
      return f(Native<int16_t>{});
    case DType::int8:
      return f(Native<int8_t>{});
    case DType::uint8:
    case DType::boolean:
      return f(Native<uint8_t>{});
    default:
      return with_floating(dtype, std::forward<F>(f));
  }
}

}  // namespace

bool is_floating(DType dtype) {
  return dtype == DType::float64 || dtype == DType::float32 || dtype == DType::bfloat16 ||
         dtype == DType::float16;
}

bool convertible(DType from, DType to) {
  return from == to || (is_floating(from) && is_floating(to));
}

void convert(DType from, std::span<const std::byte> in, DType to, std::span<std::byte> out) {
  TRIREME_ASSERT(convertible(from, to), name_of(from), " to ", name_of(to));
  TRIREME_ASSERT(in.size() / static_cast<size_t>(bytes_of(from)) ==
                         out.size() / static_cast<size_t>(bytes_of(to)) &&
                     in.size() % static_cast<size_t>(bytes_of(from)) == 0,
                 in.size(), " bytes of ", name_of(from), " into ", out.size(), " of ", name_of(to));
  if (in.empty()) return;
  if (from == to) {
    std::memcpy(out.data(), in.data(), in.size());
  } else if (from == DType::bfloat16 && to == DType::float32) {
    brain_to_float(in, out);
  } else if (from == DType::float32 && to == DType::bfloat16) {
    float_to_brain(in, out);
  } else {
    with_floating(from, [&](auto f) {
      with_floating(to, [&](auto t) { convert_all<decltype(f), decltype(t)>(in, out); });
    });
  }
}

void to_doubles(DType from, std::span<const std::byte> in, std::span<double> out) {
  TRIREME_ASSERT(in.size() == out.size() * static_cast<size_t>(bytes_of(from)));
  with_any(from, [&](auto f) {
    convert_all<decltype(f), Native<double>>(in, std::as_writable_bytes(out));
  });
}

}  // namespace trireme
