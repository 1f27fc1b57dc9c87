#include "data/tokenizer/pattern.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace trireme {
namespace {

std::vector<std::string> matches(const Pattern& pattern, std::string_view text) {
  PatternScratch scratch;
  std::string copy;
  const std::string_view prepared = pattern.prepare(text, copy);
  std::vector<std::string> found;
  size_t begin, end;
  for (size_t at = 0; at <= text.size() && pattern.find(prepared, at, scratch, begin, end);
       at = end)
    found.emplace_back(text.substr(begin, end - begin));
  return found;
}

std::vector<std::string> matches(std::string_view expression, std::string_view text) {
  return matches(Pattern::regex(expression, "the test"), text);
}

using Found = std::vector<std::string>;

TEST(Pattern, FindsLiterals) {
  EXPECT_EQ(matches(Pattern::literal("a."), "a.aba."), (Found{"a.", "a."}));
  EXPECT_EQ(matches(Pattern::literal(""), "abc"), Found{});
}

TEST(Pattern, SpaceIsWhiteSpaceOfUnicode) {
  EXPECT_EQ(matches(R"(\s)", "a\u0085b\u00A0c\u180Ed\u3000"),
            (Found{"\u0085", "\u00A0", "\u3000"}));
  EXPECT_EQ(matches(R"([^\s]+)", "a\u0085b"), (Found{"a", "b"}));
  EXPECT_EQ(matches(R"([\S]+)", "a\u0085b\u180E"), (Found{"a", "b\u180E"}));
}

// U+1C89 (Lu) and U+31350 (Han) came after Unicode 14, U+10D40 (Nd) with Unicode 16.
TEST(Pattern, KnowsCharactersNewerThanItsLibrary) {
  EXPECT_EQ(matches(R"(\p{Lu}+)", "a\u1C89B"), Found{"\u1C89B"});
  EXPECT_EQ(matches(R"(\p{Han}+)", "a\U00031350\u4E2D"), Found{"\U00031350\u4E2D"});
  EXPECT_EQ(matches(R"(\p{N})", "\U00010D40x"), Found{"\U00010D40"});
}

TEST(Pattern, BytesThatAreNoCharacterAreControls) {
  EXPECT_EQ(matches(R"([^\s\p{L}\p{N}]+)", "a\xFF\xE2\x82 b"), Found{"\xFF\xE2\x82"});
  EXPECT_EQ(matches(R"(\p{L}+)", "\xC3\xC3\xA9"), Found{"\xC3\xA9"});
}

TEST(Pattern, LineEndsAreRubys) { EXPECT_EQ(matches("^b$", "a\nb\nc"), Found{"b"}); }

TEST(Pattern, OutlivesTheStackOfItsCompiler) {
  const std::string text(1 << 18, 'a');
  EXPECT_EQ(matches(R"((?:a|b)+)", text), Found{text});
}

TEST(Pattern, RefusesByNameWhatItDoesNotHave) {
  const std::pair<const char*, const char*> cases[] = {
      {R"(\h)", "'\\h'"},
      {R"(a++b{2}+)", "quantifier of a quantifier"},
      {R"([a&&b])", "'&&'"},
      {R"([a[b]])", "a class inside a class"},
      {R"((?<n>a))", "'(?<n'"},
      {R"((?i)a)", "'(?i)'"},
      {R"(\p{Greek})", "Greek"},
      {R"(\1)", "'\\1'"},
      {R"((?i:ss))", "'ss'"},
      {R"([b-a])", "reversed"},
      {R"(a{2,1})", "reversed"},
      {R"(()", "without its ')'"},
      {R"([a)", "without its ']'"},
      {R"())", "unmatched"},
      {R"(*a)", "nothing"},
      {R"(a*)", "can match nothing"},
      {R"([\x{20000}-\x{2ffff}])", "newer than Unicode 14"},
      {R"(a{1001})", "above 1000"},
      {R"(\bfoo)", "'\\b'"},
  };
  for (const auto& [expression, named] : cases) {
    try {
      Pattern::regex(expression, "file: pattern");
      ADD_FAILURE() << expression << " was accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(named), std::string::npos)
          << expression << ": " << error.what();
      EXPECT_TRUE(std::string(error.what()).starts_with("file: pattern: ")) << error.what();
    }
  }
  const std::string deep = std::string(100000, '(') + "a" + std::string(100000, ')');
  EXPECT_THROW(Pattern::regex(deep, "deep"), InputError);
}

}  // namespace
}  // namespace trireme
