#include "base/recipe/terms.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace trireme {
namespace {

// The failing term in words, "" when all hold.
std::string failing(std::string_view condition, const std::map<std::string, Value, std::less<>>& is,
                    std::string_view family = "") {
  const auto term = first_failing(parse_condition(condition, family), [&](std::string_view key) {
    const auto at = is.find(key);
    return at == is.end() ? nullptr : &at->second;
  });
  return term ? describe(*term) : "";
}

TEST(Terms, ConditionsHoldOrNameTheirFirstFailingTerm) {
  EXPECT_EQ(failing("", {}), "");
  EXPECT_EQ(failing("a=x|y", {{"a", "y"}}), "");
  EXPECT_EQ(failing("a=x|y", {{"a", "z"}}), "a = x or y");
  EXPECT_EQ(failing("a=x", {}), "a = x");
  EXPECT_EQ(failing("a=true", {{"a", true}}), "");
  EXPECT_EQ(failing("a=true", {{"a", false}}), "a = true");
  EXPECT_EQ(failing("a=2", {{"a", 2}}), "");
  EXPECT_EQ(failing("a>0", {{"a", 1}}), "");
  EXPECT_EQ(failing("a>0", {{"a", 0.0}}), "a > 0");
  EXPECT_EQ(failing("a>0", {}), "a > 0");
  EXPECT_EQ(failing("a", {{"a", false}}), "");
  EXPECT_EQ(failing("a", {}), "a");
  EXPECT_EQ(failing("!a", {}), "");
  EXPECT_EQ(failing("!a", {{"a", 1}}), "no a");
  EXPECT_EQ(failing("a & b & c", {{"a", 1}}), "b");
  EXPECT_EQ(failing("f.*.k=x", {{"f.user.k", "x"}}, "user"), "");
}

TEST(Terms, ARangeNamesTheBoundThatIsBroken) {
  EXPECT_EQ(broken_bound("", 5), std::nullopt);
  EXPECT_EQ(broken_bound(">= 0, < 1", 0), std::nullopt);
  EXPECT_EQ(broken_bound(">= 0, < 1", 0.999), std::nullopt);
  EXPECT_EQ(broken_bound(">= 0, < 1", 1.0), "< 1");
  EXPECT_EQ(broken_bound(">= 0, < 1", -1e-300), ">= 0");
  EXPECT_EQ(broken_bound("> 0, <= 7", 0), "> 0");
  EXPECT_EQ(broken_bound("> 0, <= 7", 8), "<= 7");
  EXPECT_EQ(broken_bound("= 3", 3), std::nullopt);
  EXPECT_EQ(broken_bound("= 3", 2), "= 3");
  // Beyond what a double tells apart.
  EXPECT_EQ(broken_bound("<= 9007199254740992", int64_t{9007199254740993}), "<= 9007199254740992");
}

TEST(Terms, ChoicesMayHaveConditions) {
  const auto choices = parse_choices("a | b if task=x|y & n>0");
  ASSERT_EQ(choices.size(), 2u);
  EXPECT_EQ(choices[0].name, "a");
  EXPECT_EQ(choices[0].when, "");
  EXPECT_EQ(choices[1].name, "b");
  EXPECT_EQ(choices[1].when, "task=x|y & n>0");
}

TEST(Terms, AMalformedTableIsOurBug) {
  EXPECT_THROW(parse_condition("=x"), InternalError);
  EXPECT_THROW(broken_bound(">=0", 1), InternalError);
  EXPECT_THROW(broken_bound("~ 0", 1), InternalError);
  EXPECT_THROW(broken_bound(">= 0", "text"), InternalError);
}

}  // namespace
}  // namespace trireme
