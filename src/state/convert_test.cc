#include "state/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/random.h"

namespace trireme {
namespace {

template <class Out, class In>
std::vector<Out> converted(DType from, const std::vector<In>& in, DType to) {
  std::vector<Out> out(in.size());
  convert(from, std::as_bytes(std::span(in)), to, std::as_writable_bytes(std::span(out)));
  return out;
}

struct Format {
  DType dtype;
  int exponent_bits, fraction_bits;
};
constexpr Format kFormats[] = {{DType::float16, 5, 10}, {DType::bfloat16, 8, 7}};

// The value of a 16-bit word by the formula of IEEE 754, in ldexp.
double value_of(uint16_t word, const Format& f) {
  const int bias = (1 << (f.exponent_bits - 1)) - 1;
  const int raw = word >> f.fraction_bits & ((1 << f.exponent_bits) - 1);
  const int fraction = word & ((1 << f.fraction_bits) - 1);
  const double sign = word >> 15 ? -1 : 1;
  if (raw == (1 << f.exponent_bits) - 1)
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * HUGE_VAL;
  if (raw == 0) return sign * std::ldexp(fraction, 1 - bias - f.fraction_bits);
  return sign * std::ldexp(fraction + (1 << f.fraction_bits), raw - bias - f.fraction_bits);
}

std::vector<uint16_t> all_words() {
  std::vector<uint16_t> words(1 << 16);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint16_t>(i);
  return words;
}

TEST(Convert, EveryWordHasItsValueAndComesBack) {
  for (const Format& f : kFormats)
    for (DType wide : {DType::float64, DType::float32}) {
      const auto words = all_words();
      const auto doubles =
          wide == DType::float64
              ? converted<double>(f.dtype, words, wide)
              : converted<double>(wide, converted<float>(f.dtype, words, wide), DType::float64);
      const auto back = converted<uint16_t>(DType::float64, doubles, f.dtype);
      for (uint16_t word : words) {
        const double expected = value_of(word, f);
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(doubles[word]) && std::isnan(value_of(back[word], f))) << word;
        } else {
          ASSERT_EQ(std::bit_cast<uint64_t>(doubles[word]), std::bit_cast<uint64_t>(expected));
          ASSERT_EQ(back[word], word);
        }
      }
    }
}

// Around every midpoint of two neighbours: the tie goes to the even word, and the least step of a
// double beside it to the nearer one. A detour through fp32 would round such values twice.
TEST(Convert, RoundsToNearestEvenOnce) {
  for (const Format& f : kFormats) {
    const auto infinity = static_cast<uint16_t>(((1 << f.exponent_bits) - 1) << f.fraction_bits);
    std::vector<double> values;
    std::vector<uint16_t> expected;
    for (uint16_t word = 0; word < infinity; ++word) {
      const auto next = static_cast<uint16_t>(word + 1);
      // Beyond the largest value the scale goes on: its upper neighbour would be 2^(bias + 1).
      const double low = value_of(word, f);
      const double high =
          next == infinity ? std::ldexp(1, 1 << (f.exponent_bits - 1)) : value_of(next, f);
      const double middle = low + (high - low) / 2;
      values.insert(values.end(),
                    {middle, std::nextafter(middle, 0), std::nextafter(middle, high)});
      expected.insert(expected.end(), {word % 2 == 0 ? word : next, word, next});
    }
    for (double beyond : {1e39, 1e300, std::numeric_limits<double>::max(), HUGE_VAL}) {
      values.push_back(beyond);
      expected.push_back(infinity);
    }
    for (double tiny : {1e-50, 1e-300, std::numeric_limits<double>::denorm_min(), 0.0}) {
      values.push_back(tiny);
      expected.push_back(0);
    }
    const size_t positive = values.size();
    for (size_t i = 0; i < positive; ++i) {
      values.push_back(-values[i]);
      expected.push_back(static_cast<uint16_t>(expected[i] | 0x8000));
    }
    const auto found = converted<uint16_t>(DType::float64, values, f.dtype);
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(found[i], expected[i]) << values[i];
  }
}

// The short way from fp32 to bf16 is the long one over fp64, on random bits.
TEST(Convert, Fp32ToBf16IsTheSameByBothWays) {
  const RandomStream stream(1, "bf16");
  std::vector<float> floats;
  for (uint64_t i = 0; i < 100'000; ++i)
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(stream.bits(i))));
  const auto direct = converted<uint16_t>(DType::float32, floats, DType::bfloat16);
  const auto doubles = converted<double>(DType::float32, floats, DType::float64);
  const auto detour = converted<uint16_t>(DType::float64, doubles, DType::bfloat16);
  for (size_t i = 0; i < floats.size(); ++i)
    ASSERT_TRUE(direct[i] == detour[i] ||
                (std::isnan(floats[i]) && std::isnan(value_of(direct[i], kFormats[1]))))
        << floats[i];
}

TEST(Convert, IntegersStayWhatTheyAre) {
  EXPECT_TRUE(convertible(DType::int64, DType::int64));
  EXPECT_FALSE(convertible(DType::int64, DType::float64));
  EXPECT_FALSE(convertible(DType::float32, DType::int32));
  const std::vector<int64_t> in = {1, -2, int64_t{1} << 62};
  EXPECT_EQ((converted<int64_t>(DType::int64, in, DType::int64)), in);
  std::vector<double> doubles(3);
  to_doubles(DType::int64, std::as_bytes(std::span(in)), doubles);
  EXPECT_EQ(doubles, (std::vector<double>{1, -2, 4.611686018427388e18}));
}

}  // namespace
}  // namespace trireme
