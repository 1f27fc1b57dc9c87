// The patterns by which nearly all byte-level tokenizers cut text into words, as hand-written
// scanners: many times faster than a regular expression. scan_test.cc holds them to the
// expressions.
#pragma once

#include <optional>
#include <string_view>

namespace trireme {

enum class WordStyle {
  gpt2,    // a space joins the word after it; contractions in lower case
  llama3,  // any one character that is no letter, digit or line end joins the letters after it;
           // digits by threes; line ends close a run of spaces
  qwen2,   // llama3 with digits one by one
};

// The style that an expression of a tokenizer.json stands for, if it is one of these.
std::optional<WordStyle> style_of(std::string_view expression);

// The expression of a style, as published.
std::string_view expression_of(WordStyle style);

// The end of the word that begins at `begin`. Words cover the text without a gap.
// REQUIRES: begin < end.
const char* word_end(WordStyle style, const char* begin, const char* end);

}  // namespace trireme
