#include "base/recipe/value.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "base/recipe/toml_reader.h"

namespace trireme {
namespace {

Value read_back(const Value& value) {
  const auto keys = read_toml_value("x", to_toml(value));
  if (!keys || keys->size() != 1) throw InternalError("not read back: " + to_toml(value));
  return keys->front().value;
}

TEST(Value, NumbersReadBackToTheBit) {
  const RandomStream random(5, "value");
  for (uint64_t i = 0; i < 20'000; ++i) {
    const double number = std::bit_cast<double>(random.bits(i));
    if (!std::isfinite(number)) continue;
    const Value back = read_back(number);
    ASSERT_TRUE(back.get<double>()) << to_toml(number);
    ASSERT_EQ(std::bit_cast<uint64_t>(*back.get<double>()), std::bit_cast<uint64_t>(number));
  }
}

TEST(Value, AWholeNumberStaysANumber) {
  for (const double number : {0.0, 1.0, -3.0, 1e22, 1e300, -0.0, 5e-324})
    EXPECT_TRUE(read_back(number).get<double>()) << to_toml(number);
  EXPECT_EQ(to_toml(1e-5), "1e-05");
  EXPECT_EQ(to_toml(0.1), "0.1");
}

TEST(Value, IntegersFlagsAndTextsReadBack) {
  const int64_t least = std::numeric_limits<int64_t>::min();
  for (const int64_t integer : {int64_t{0}, int64_t{-1}, least, -(least + 1)})
    EXPECT_EQ(read_back(integer), Value(integer));
  EXPECT_EQ(read_back(true), Value(true));
  std::string every_ascii;
  for (char c = 1; c < 127; ++c) every_ascii += c;
  for (const std::string& text : {std::string(), every_ascii, std::string("\x7f\x00", 2),
                                  std::string("größer 漢字 🚣"), std::string("a\"b\\c\n'''\"\"\"")})
    EXPECT_EQ(read_back(text), Value(text));
}

TEST(Value, ListsAndTablesReadBack) {
  const Value::Table table{{"path", "a b"}, {"strange name", 1}, {"z", Value::List{1, 2.5, "x"}}};
  EXPECT_EQ(read_back(Value::List{table, "plain"}), Value(Value::List{table, "plain"}));
  EXPECT_EQ(to_toml(Value::List{}), "[]");
}

TEST(Value, ALiteralIsATextAndNoFlag) {
  EXPECT_TRUE(Value("text").get<std::string>());
  EXPECT_TRUE(Value(true).get<bool>());
  EXPECT_TRUE(Value(size_t{3}).get<int64_t>());
}

}  // namespace
}  // namespace trireme
