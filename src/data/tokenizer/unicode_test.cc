#include "data/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include "data/tokenizer/test_text.h"
#include "data/utf8.h"

namespace trireme::unicode {
namespace {

// All characters and all forms against `tokenizers`: tests/test_tokenizer.py.

TEST(Utf8, DecodesWhatItEncodes) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code < 0xE000) continue;
    std::string text;
    append(text, code);
    const auto first = decode(text.data(), text.data() + text.size());
    ASSERT_EQ(first.code, code);
    ASSERT_EQ(first.bytes, text.size());
    ASSERT_EQ(decode_last(text.data(), text.data() + text.size()).code, code);
    for (size_t cut = 1; cut < text.size(); ++cut)
      ASSERT_EQ(incomplete_tail("a" + text.substr(0, cut)), cut);
    ASSERT_EQ(incomplete_tail(text), 0u);
  }
}

// The oracle is the check that corpora use, written apart from this one.
TEST(Utf8, KnowsWhatIsNone) {
  for (uint64_t draw = 0; draw < 3000; ++draw) {
    const std::string text = ugly_text(draw, 10, draw % 2 == 0);
    bool valid = true;
    const char *p = text.data(), *end = p + text.size();
    size_t first_bad = 0;
    while (p < end) {
      const auto [code, bytes] = decode(p, end);
      if (code == kNoCharacter) {
        valid = false, first_bad = static_cast<size_t>(p - text.data());
        break;
      }
      p += bytes;
    }
    const auto oracle = find_invalid_utf8(text);
    ASSERT_EQ(valid, !oracle.has_value()) << draw;
    if (oracle) {
      ASSERT_EQ(first_bad, *oracle) << draw;
    }
  }
}

TEST(Unicode, NormalForms) {
  const std::string text = "\u00E9 \uFB01 \uAC01 \u1E9B\u0323";
  EXPECT_EQ(normalize(text, Form::nfd), "e\u0301 \uFB01 \u1100\u1161\u11A8 \u017F\u0323\u0307");
  EXPECT_EQ(normalize(text, Form::nfc), text);
  EXPECT_EQ(normalize(text, Form::nfkd), "e\u0301 fi \u1100\u1161\u11A8 s\u0323\u0307");
  EXPECT_EQ(normalize(text, Form::nfkc), "\u00E9 fi \uAC01 \u1E69");
  EXPECT_EQ(normalize("e\u0301\xFF\u0301", Form::nfc), "\u00E9\xFF\u0301");
}

TEST(Unicode, LowerCase) {
  EXPECT_EQ(to_lower("A\u00C9\u0130\u0394\u1C89\xFF"), "a\u00E9i\u0307\u03B4\u1C8A\xFF");
}

}  // namespace
}  // namespace trireme::unicode
