#include "data/tokenizer/added_tokens.h"

#include <algorithm>

#include "data/tokenizer/unicode.h"

namespace trireme {
namespace {

using unicode::Kind;

bool begins_with_word(std::string_view text) {
  return !text.empty() &&
         unicode::is_word(unicode::decode(text.data(), text.data() + text.size()).code);
}

bool ends_with_word(std::string_view text) {
  return !text.empty() &&
         unicode::is_word(unicode::decode_last(text.data(), text.data() + text.size()).code);
}

size_t spaces_at_begin(std::string_view text) {
  const char *p = text.data(), *const end = p + text.size();
  while (p < end) {
    const auto [code, bytes] = unicode::decode(p, end);
    if (unicode::kind(code) != Kind::space) break;
    p += bytes;
  }
  return static_cast<size_t>(p - text.data());
}

size_t spaces_at_end(std::string_view text) {
  const char *const begin = text.data(), *end = begin + text.size();
  while (begin < end) {
    const auto [code, bytes] = unicode::decode_last(begin, end);
    if (unicode::kind(code) != Kind::space) break;
    end -= bytes;
  }
  return text.size() - static_cast<size_t>(end - begin);
}

}  // namespace

TokenFinder::TokenFinder(std::vector<AddedToken> tokens, std::span<const std::string> spelled)
    : tokens_(std::move(tokens)) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    int32_t node = 0;
    for (const char c : spelled[i]) {
      const auto byte = static_cast<uint8_t>(c);
      int32_t next = child(node, byte);
      if (next < 0) {
        next = static_cast<int32_t>(nodes_.size());
        auto& edges = nodes_[node].next;
        edges.insert(std::lower_bound(edges.begin(), edges.end(), std::pair(byte, int32_t{-1})),
                     {byte, next});
        nodes_.emplace_back();
      }
      node = next;
    }
    if (nodes_[node].token < 0) nodes_[node].token = static_cast<int32_t>(i);
    bytes_.push_back(spelled[i].size());
  }
  for (const auto& [byte, node] : nodes_[0].next) first_[byte] = node;
}

int32_t TokenFinder::child(int32_t node, uint8_t byte) const {
  const auto& edges = nodes_[node].next;
  const auto at = std::lower_bound(edges.begin(), edges.end(), std::pair(byte, int32_t{-1}));
  return at != edges.end() && at->first == byte ? at->second : -1;
}

int32_t TokenFinder::longest(std::string_view text, size_t at) const {
  int32_t found = -1;
  int32_t node = first_[static_cast<uint8_t>(text[at])];
  while (node >= 0) {
    if (nodes_[node].token >= 0) found = nodes_[node].token;
    if (++at == text.size()) break;
    node = child(node, static_cast<uint8_t>(text[at]));
  }
  return found;
}

void TokenFinder::split(std::string_view text, bool plain, std::vector<Part>& out) const {
  size_t done = 0;  // what lies before is in `out`
  for (size_t at = 0; at < text.size();) {
    const int32_t found = first_[static_cast<uint8_t>(text[at])] < 0 ? -1 : longest(text, at);
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[found];
    size_t begin = at, end = at + bytes_[found];
    at = end;  // Also when it is left as text, the search goes on behind it.
    if (token.special && plain) continue;
    if (token.single_word &&
        (ends_with_word(text.substr(0, begin)) || begins_with_word(text.substr(end))))
      continue;
    if (token.lstrip) begin = std::max(begin - spaces_at_end(text.substr(0, begin)), done);
    if (token.rstrip) end += spaces_at_begin(text.substr(end));
    if (done < begin) out.push_back({text.substr(done, begin - done), -1});
    out.push_back({text.substr(begin, end - begin), token.id});
    done = end;
  }
  if (done < text.size()) out.push_back({text.substr(done), -1});
}

}  // namespace trireme
