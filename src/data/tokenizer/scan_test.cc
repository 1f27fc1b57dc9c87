#include "data/tokenizer/scan.h"

#include <gtest/gtest.h>

#include "data/tokenizer/pattern.h"
#include "data/tokenizer/test_text.h"

namespace trireme {
namespace {

class Scan : public testing::TestWithParam<WordStyle> {};

// The oracle is the published expression, run by PCRE2.
TEST_P(Scan, CutsWhereTheExpressionDoes) {
  const WordStyle style = GetParam();
  const Pattern pattern = Pattern::regex(expression_of(style), "the test");
  PatternScratch scratch;
  for (uint64_t draw = 0; draw < 4000; ++draw) {
    const std::string text = ugly_text(draw, 1 + draw % 40, true);
    std::string copy;
    const std::string_view prepared = pattern.prepare(text, copy);
    size_t at = 0;
    while (at < text.size()) {
      size_t begin, end;
      ASSERT_TRUE(pattern.find(prepared, at, scratch, begin, end))
          << "draw " << draw << ": " << text;
      ASSERT_EQ(begin, at) << "draw " << draw << ": " << text;
      const char* const stop = word_end(style, text.data() + at, text.data() + text.size());
      ASSERT_EQ(static_cast<size_t>(stop - text.data()), end)
          << "draw " << draw << ", byte " << at << ": " << text;
      at = end;
    }
  }
}

TEST_P(Scan, IsKnownByItsExpression) { EXPECT_EQ(style_of(expression_of(GetParam())), GetParam()); }

INSTANTIATE_TEST_SUITE_P(Styles, Scan,
                         testing::Values(WordStyle::gpt2, WordStyle::llama3, WordStyle::qwen2));

TEST(ScanStyle, OtherExpressionsHaveNone) { EXPECT_EQ(style_of(R"(\p{L}+)"), std::nullopt); }

}  // namespace
}  // namespace trireme
