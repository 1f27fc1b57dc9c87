// Tokens that are found in the text before anything else is done to it: special ones such as
// "<|endoftext|>", and others that the file lists under "added_tokens".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;
  bool normalized = false;              // is looked for in normalized text, in its normalized form
  bool single_word = false;             // only where no word character touches it
  bool lstrip = false, rstrip = false;  // takes in the white space on its left, right
};

// Finds the leftmost, then longest, token of a set. Immutable, any thread.
class TokenFinder {
 public:
  // What is looked for is `spelled[i]`, not tokens[i].content: it may be normalized. Of equal ones
  // the first counts.
  TokenFinder(std::vector<AddedToken> tokens, std::span<const std::string> spelled);

  // A part of the text: a token (its place in the list), or what lies between (-1).
  struct Part {
    std::string_view text;
    int32_t id;
  };
  // The parts in order; those between are not empty. `plain`: special tokens are not recognised.
  void split(std::string_view text, bool plain, std::vector<Part>& out) const;
  bool empty() const { return tokens_.empty(); }

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> next;  // by byte, ascending
    int32_t token = -1;
  };
  int32_t child(int32_t node, uint8_t byte) const;  // -1: none
  int32_t longest(std::string_view text, size_t at) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<int32_t> first_ = std::vector<int32_t>(256, -1);  // the root's children
  std::vector<size_t> bytes_;                                   // length of what is looked for
};

}  // namespace trireme
