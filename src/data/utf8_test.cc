#include "data/utf8.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace trireme {
namespace {

// The plainest encoder, to make every sequence that is right.
std::string encode(uint32_t c) {
  const auto byte = [](uint32_t b) { return static_cast<char>(b); };
  std::string s;
  if (c < 0x80) s = {byte(c)};
  else if (c < 0x800) s = {byte(0xC0 | c >> 6), byte(0x80 | (c & 63))};
  else if (c < 0x10000)
    s = {byte(0xE0 | c >> 12), byte(0x80 | (c >> 6 & 63)), byte(0x80 | (c & 63))};
  else
    s = {byte(0xF0 | c >> 18), byte(0x80 | (c >> 12 & 63)), byte(0x80 | (c >> 6 & 63)),
         byte(0x80 | (c & 63))};
  return s;
}

// Counting argument: all code points but the surrogates are taken, and of all sequences of up to
// four bytes with a lead of four no more than these.
TEST(Utf8, TakesEveryCodePointAndNothingElse) {
  uint64_t right = 0;
  for (uint32_t c = 0; c <= 0x10FFFF; ++c) {
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(find_invalid_utf8(encode(c)).has_value(), surrogate) << std::hex << c;
    right += !surrogate;
  }
  ASSERT_EQ(right, 0x110000u - 0x800u);
  // Sequences that are taken as one character; strings of shorter ones are told by their first
  // byte.
  uint64_t two = 0, three = 0, four_heads = 0;
  for (int a = 0xC0; a < 0x100; ++a)
    for (int b = 0; b < 0x100; ++b) {
      const std::string head{static_cast<char>(a), static_cast<char>(b)};
      two += !find_invalid_utf8(head);
      four_heads += a >= 0xF0 && !find_invalid_utf8(head + "\x80\x80");
      for (int c = 0; a >= 0xE0 && a < 0xF0 && c < 0x100; ++c)
        three += !find_invalid_utf8(head + static_cast<char>(c));
    }
  EXPECT_EQ(two, 0x800u - 0x80u);
  EXPECT_EQ(three, 0x10000u - 0x800u - 0x800u);
  EXPECT_EQ(four_heads * 64 * 64, 0x110000u - 0x10000u);
}

// The fast path over eight bytes must not jump over a fault, wherever it stands.
TEST(Utf8, FindsTheFaultAtEveryOffset) {
  for (size_t length = 1; length < 40; ++length)
    for (size_t at = 0; at < length; ++at) {
      std::string text(length, 'a');
      text[at] = '\xFF';
      EXPECT_EQ(find_invalid_utf8(text), at);
      text[at] = '\xC3';  // cut off, or followed by an 'a'
      EXPECT_EQ(find_invalid_utf8(text), at);
    }
  EXPECT_EQ(find_invalid_utf8(""), std::nullopt);
}

TEST(Utf8, TellsBinaryFromText) {
  EXPECT_EQ(find_binary("plain\ttext\r\n\f\x1b[0m"), std::nullopt);
  EXPECT_EQ(find_binary(std::string("ab\0c", 4)), 2u);
  EXPECT_EQ(find_binary("ab\x01\x02\x03\x04"), 2u);
  EXPECT_EQ(find_binary("a single \x01 is a curiosity"), std::nullopt);
  EXPECT_EQ(find_binary(""), std::nullopt);
}

TEST(Utf8, ReplacesARunOfStrayBytesOnce) {
  EXPECT_EQ(replace_invalid_utf8("a\xC3\xA4z"), "a\xC3\xA4z");
  EXPECT_EQ(replace_invalid_utf8("\xA4z\xC3"), "\xEF\xBF\xBDz\xEF\xBF\xBD");
  EXPECT_EQ(replace_invalid_utf8("\xA4\xA4z"), "\xEF\xBF\xBDz");
}

}  // namespace
}  // namespace trireme
