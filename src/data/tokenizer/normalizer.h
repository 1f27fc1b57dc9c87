// What is done to text before it is cut: a list of steps of a tokenizer.json's "normalizer".
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/tokenizer/pattern.h"
#include "data/tokenizer/unicode.h"

namespace trireme {

struct Lowercase {};
struct StripAccents {};
struct StripSpaces {
  bool left, right;
};
struct Prepend {  // to text that is not empty
  std::string text;
};
struct Replace {
  Pattern pattern;
  std::string content;

  std::string operator()(std::string_view text, PatternScratch& scratch) const;
};
struct ByteAlphabet {};  // each byte becomes a printable character, byte_alphabet.h

using NormalizerStep = std::variant<unicode::Form, Lowercase, StripAccents, StripSpaces, Prepend,
                                    Replace, ByteAlphabet>;

// Immutable, any thread.
class Normalizer {
 public:
  explicit Normalizer(std::vector<NormalizerStep> steps = {}) : steps_(std::move(steps)) {}
  bool empty() const { return steps_.empty(); }
  // Whether it may take away the beginning of a text.
  bool removes() const;
  std::string operator()(std::string_view text, PatternScratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace trireme
