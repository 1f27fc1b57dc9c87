#include "data/tokenizer/decoder.h"

#include <algorithm>

#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/unicode.h"

namespace trireme {
namespace {

using Tokens = std::vector<std::string>;

// The byte of "<0xE2>". A sign before a single digit is read, too, as `tokenizers` does.
std::optional<char> byte_of(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(token[3] == '+' ? 4 : 3, token[3] == '+' ? 1 : 2)) {
    const auto place = std::string_view("0123456789abcdef").find(c | 0x20);
    if (c < '0' || (c > '9' && c < 'A') || place == std::string_view::npos) return std::nullopt;
    value = value * 16 + static_cast<int>(place);
  }
  return static_cast<char>(value);
}

bool is_utf8(std::string_view bytes) {
  const char *p = bytes.data(), *const end = p + bytes.size();
  while (p < end) {
    const auto [code, length] = unicode::decode(p, end);
    if (code == unicode::kNoCharacter) return false;
    p += length;
  }
  return true;
}

// A token with a character outside the alphabet is text as it stands.
std::string read_alphabet(std::string_view token) {
  auto bytes = from_alphabet(token);
  return bytes ? *std::move(bytes) : std::string(token);
}

Tokens read_byte_tokens(const Tokens& tokens) {
  Tokens out;
  std::string run;
  const auto flush = [&] {
    if (is_utf8(run)) {
      if (!run.empty()) out.push_back(run);
    } else {
      out.insert(out.end(), run.size(), "\uFFFD");
    }
    run.clear();
  };
  for (const auto& token : tokens) {
    if (const auto byte = byte_of(token)) {
      run += *byte;
      continue;
    }
    flush();
    out.push_back(token);
  }
  flush();
  return out;
}

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const auto& token : tokens) text += token;
  return text;
}

std::string strip(std::string_view token, const StripCharacter& step) {
  const char *begin = token.data(), *end = begin + token.size();
  for (size_t i = 0; i < step.left && begin < end; ++i) {
    const auto [code, bytes] = unicode::decode(begin, end);
    if (code != step.character) break;
    begin += bytes;
  }
  for (size_t i = 0; i < step.right && begin < end; ++i) {
    const auto [code, bytes] = unicode::decode_last(begin, end);
    if (code != step.character) break;
    end -= bytes;
  }
  return std::string(begin, end);
}

std::string read_mark(std::string_view token, char32_t mark, std::string_view instead) {
  std::string out;
  const char *p = token.data(), *const end = p + token.size();
  while (p < end) {
    const auto [code, bytes] = unicode::decode(p, end);
    if (code == mark) out += instead;
    else out.append(p, bytes);
    p += bytes;
  }
  return out;
}

struct Apply {
  Tokens tokens;
  PatternScratch& scratch;

  Tokens operator()(ReadAlphabet) {
    std::string text;
    for (const auto& token : tokens) text += read_alphabet(token);
    return {text};
  }
  Tokens operator()(ReadByteTokens) { return read_byte_tokens(tokens); }
  Tokens operator()(JoinTokens) { return {joined(tokens)}; }
  Tokens operator()(const StripCharacter& step) {
    for (auto& token : tokens) token = strip(token, step);
    return std::move(tokens);
  }
  Tokens operator()(const ReadMetaspace& step) {
    for (size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = read_mark(tokens[i], step.mark, i == 0 && step.prefixed ? "" : " ");
    return std::move(tokens);
  }
  Tokens operator()(const Replace& replace) {
    for (auto& token : tokens) token = replace(token, scratch);
    return std::move(tokens);
  }
};

}  // namespace

std::string Decoder::operator()(std::vector<std::string> tokens) const {
  if (!steps_) {
    std::string text;
    for (size_t i = 0; i < tokens.size(); ++i) text += (i > 0 ? " " : "") + tokens[i];
    return text;
  }
  PatternScratch scratch;
  for (const auto& step : *steps_) tokens = std::visit(Apply{std::move(tokens), scratch}, step);
  return joined(tokens);
}

std::string Decoder::bytes_of(std::string_view token) const {
  std::string now(token);
  if (!steps_) return now;
  PatternScratch scratch;
  for (const auto& step : *steps_) {
    if (std::holds_alternative<ReadAlphabet>(step)) {
      now = read_alphabet(now);
    } else if (std::holds_alternative<ReadByteTokens>(step)) {
      if (const auto byte = byte_of(now)) return std::string(1, *byte);
    } else if (const auto* space = std::get_if<ReadMetaspace>(&step)) {
      now = read_mark(now, space->mark, " ");
    } else if (const auto* replace = std::get_if<Replace>(&step)) {
      now = (*replace)(now, scratch);
    }
  }
  return now;
}

bool Decoder::is_byte_level() const {
  return steps_ && steps_->size() == 1 && std::holds_alternative<ReadAlphabet>((*steps_)[0]);
}

bool Decoder::streams() const {
  bool joined = false;
  if (!steps_) return true;
  for (const auto& step : *steps_) {
    const auto* strip = std::get_if<StripCharacter>(&step);
    if (joined && (strip == nullptr || strip->right > 0)) return false;
    joined |=
        std::holds_alternative<JoinTokens>(step) || std::holds_alternative<ReadAlphabet>(step);
  }
  return true;
}

bool Decoder::is_byte_token(std::string_view token) const {
  if (!steps_ || !byte_of(token)) return false;
  return std::any_of(steps_->begin(), steps_->end(), [](const DecoderStep& step) {
    return std::holds_alternative<ReadByteTokens>(step);
  });
}

}  // namespace trireme
