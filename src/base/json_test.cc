#include "base/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/test_mutation.h"

namespace trireme {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

TEST(ParseJson, GivesWhatTheLibraryGives) {
  const std::string text =
      R"({"b": [1, -2, 3.5, 18446744073709551615, true, null, "é\n\ud83d\ude00"], "a": {"": {}}, "c": []})";
  EXPECT_EQ(parse_json<json>(text, "f"), json::parse(text));
  EXPECT_EQ(parse_json<ordered_json>(text, "f").dump(), ordered_json::parse(text).dump());
  for (const char* scalar : {"1", "\"x\"", "null", " [] "})
    EXPECT_EQ(parse_json<json>(scalar, "f"), json::parse(scalar));
}

TEST(ParseJson, RefusesInOneLine) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "at byte 1"},
      {"{\"a\": 1", "at byte 8"},
      {"[1,]", "at byte 4"},
      {"[1] 2", "at byte 5"},
      {"NaN", "at byte 1"},
      {"[Infinity]", "at byte 2"},
      {"[1e999]", "number overflow"},
      {"{'a': 1}", "at byte 2"},
      {"// x\n1", "at byte 1"},
      {"\"\\ud800\"", "surrogate"},
      {"\"\xff\"", "at byte 2"},
      {R"({"x": {"a": 1, "b": 2, "a": 3}})", "the key \"a\" occurs twice"},
      {nested(65), "nested deeper than 64"},
      {std::string(1 << 20, '['), "nested deeper than 64"},
      {"\"" + std::string(100'000, 'x'), "at byte 100"},
      {"\"a\x1b[31m\nb\"", "control"},
  };
  for (const auto& [text, says] : cases) {
    const auto one = try_parse_json<json>(text);
    const auto other = try_parse_json<ordered_json>(text);
    ASSERT_FALSE(one.ok()) << text.substr(0, 80);
    EXPECT_NE(one.reason().find(says), std::string::npos) << one.reason();
    EXPECT_EQ(one.reason(), other.reason());
    EXPECT_LT(one.reason().size(), 300u);
    for (const char c : one.reason()) EXPECT_TRUE(c < 0 || c >= ' ') << one.reason();
  }
  EXPECT_TRUE(try_parse_json<json>(nested(64)).ok());
  EXPECT_FALSE(try_parse_json<json>("[1,2,3]", {.values = 3}).ok());
  EXPECT_TRUE(try_parse_json<json>("[1,2,3]", {.values = 4}).ok());
  EXPECT_FALSE(try_parse_json<json>("[1,2,3]", {.bytes = 6}).ok());
}

// nlohmann's own ordered object takes minutes for this: it compares each key with all before it.
TEST(ParseJson, AHundredThousandKeysTakeNoSquareOfIt) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i) text += concat(i ? "," : "", "\"", i, "\":", i);
  const auto parsed = parse_json<ordered_json>(text + "}", "f");
  EXPECT_EQ(parsed.size(), 100'000u);
  EXPECT_EQ(parsed.front(), 0);
  EXPECT_FALSE(try_parse_json<ordered_json>(text + ",\"99\":0}").ok());
}

TEST(ParseJson, SurvivesMutations) {
  const std::string text = R"({"a": [1, {"b": "text", "c": [2.5, null]}], "d": {"e": true}})";
  testing::survive(1, 4000, [&](testing::Mutator& mutator) {
    const std::string changed = mutator.either(text);
    const json found = parse_json<json>(changed, "f");
    EXPECT_EQ(found, json(parse_json<ordered_json>(changed, "f")));
  });
}

}  // namespace
}  // namespace trireme
