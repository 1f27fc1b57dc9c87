// From tokens back to text: the steps of a tokenizer.json's "decoder".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/tokenizer/normalizer.h"

namespace trireme {

struct ReadAlphabet {};    // all tokens together: from GPT-2's alphabet to bytes
struct ReadByteTokens {};  // runs of "<0x..>" to the characters that they are, or U+FFFD for each
struct JoinTokens {};
struct StripCharacter {  // from each token, so many at its ends
  char32_t character;
  size_t left, right;
};
struct ReadMetaspace {
  char32_t mark;
  bool prefixed;  // the mark of the first token was put there, and is no space
};

using DecoderStep =
    std::variant<ReadAlphabet, ReadByteTokens, JoinTokens, StripCharacter, ReadMetaspace, Replace>;

// Immutable, any thread.
class Decoder {
 public:
  // nullopt: tokens are joined by spaces.
  explicit Decoder(std::optional<std::vector<DecoderStep>> steps = std::nullopt)
      : steps_(std::move(steps)) {}

  std::string operator()(std::vector<std::string> tokens) const;
  // The bytes that one token stands for in the middle of a text.
  std::string bytes_of(std::string_view token) const;

  // All tokens' bytes simply follow each other.
  bool is_byte_level() const;
  // Whether the text of a token can depend on what comes after it: only if it is a byte token.
  bool streams() const;
  bool is_byte_token(std::string_view token) const;

 private:
  std::optional<std::vector<DecoderStep>> steps_;
};

}  // namespace trireme
