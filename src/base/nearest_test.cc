#include "base/nearest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace trireme {
namespace {

// The same definition, by recursion and without a table.
size_t naive(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.size() + b.size();
  const auto a1 = a.substr(1), b1 = b.substr(1);
  size_t best = std::min({naive(a1, b) + 1, naive(a, b1) + 1, naive(a1, b1) + (a[0] != b[0])});
  if (a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0])
    best = std::min(best, naive(a.substr(2), b.substr(2)) + 1);
  return best;
}

std::vector<std::string> all_words(size_t longest) {
  std::vector<std::string> words{""};
  for (size_t i = 0; i < words.size() && words[i].size() < longest; ++i)
    for (const char c : {'a', 'b', 'c'}) words.push_back(words[i] + c);
  return words;
}

TEST(Nearest, DistanceIsTheDefinitionForAllShortWords) {
  const std::vector<std::string> words = all_words(4);
  for (const std::string& a : words)
    for (const std::string& b : words) ASSERT_EQ(edit_distance(a, b), naive(a, b)) << a << " " << b;
}

TEST(Nearest, TakesTheNearestThatCanBeMeant) {
  const std::vector<std::string> verbs{"train", "explain", "generate", "eval", "help"};
  EXPECT_EQ(nearest("trian", verbs), "train");
  EXPECT_EQ(nearest("eval ", verbs), "eval");
  EXPECT_EQ(nearest("generates", verbs), "generate");
  EXPECT_EQ(nearest("submit", verbs), std::nullopt);
  EXPECT_EQ(nearest("x", verbs), std::nullopt);
  EXPECT_EQ(nearest(std::string(100'000, 'a'), verbs), std::nullopt);
  EXPECT_EQ(nearest("anything", {}), std::nullopt);
}

TEST(Nearest, DoesNotTakeAShortWordForAnotherOfItsLength) {
  const std::vector<std::string> keys{"lr"};
  EXPECT_EQ(nearest("xy", keys), std::nullopt);
  EXPECT_EQ(nearest("l", keys), "lr");
}

}  // namespace
}  // namespace trireme
