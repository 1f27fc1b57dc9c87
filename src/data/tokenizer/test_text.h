// Random text for the tests of tokenizers: all that is ugly about UTF-8, from a fixed seed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "data/tokenizer/unicode.h"

namespace trireme {

// Text number `draw` of `pieces` pieces: letters, digits, spaces, quotes, marks, emoji, any
// character at all, and, if wanted, bytes that are no UTF-8.
inline std::string ugly_text(uint64_t draw, size_t pieces, bool broken_utf8) {
  static const std::vector<std::string_view> common = {" ",       " ",
                                                       "  ",      "\n",
                                                       "\r\n",    "\t",
                                                       "\v",      "\u00A0",
                                                       "\u3000",  "\u2028",
                                                       "\u0085",  "'",
                                                       "'s",      "'re",
                                                       "'LL",     "'\u017F",
                                                       "a",       "the",
                                                       "Z",       "\u00E9",
                                                       "e\u0301", "\u4E2D",
                                                       "\uAC01",  "\u0E01\u0E34",
                                                       "1",       "23",
                                                       "\u0663",  "\u00B2",
                                                       "\u2167",  "_",
                                                       ".",       "...",
                                                       "-",       "/",
                                                       "{",       "\\",
                                                       "\u200D",  "\U0001F468\u200D\U0001F469",
                                                       "\u0300",  "\x7F",
                                                       "\x01"};
  static const std::vector<std::string_view> broken = {"\xFF",         "\xC3", "\xE2\x82",
                                                       "\xED\xA0\x80", "\x80", "\xF4\x90\x80\x80"};
  const RandomStream random(7, "ugly text", draw);
  std::string text;
  for (size_t i = 0; i < pieces; ++i) {
    const uint64_t kind = random.below(2 * i, 20);
    if (kind == 0) {
      const char32_t code = static_cast<char32_t>(random.below(2 * i + 1, 0x110000));
      if (code < 0xD800 || code >= 0xE000) unicode::append(text, code);
    } else if (kind == 1 && broken_utf8) {
      text += broken[random.below(2 * i + 1, broken.size())];
    } else {
      text += common[random.below(2 * i + 1, common.size())];
    }
  }
  return text;
}

}  // namespace trireme
