#include "data/tokenizer/normalizer.h"

#include "data/tokenizer/byte_alphabet.h"

namespace trireme {
namespace {

using unicode::Kind;

std::string strip_accents(std::string_view text) {
  std::string out;
  const char *p = text.data(), *const end = p + text.size();
  while (p < end) {
    const auto [code, bytes] = unicode::decode(p, end);
    if (!unicode::is_mark(code)) out.append(p, bytes);
    p += bytes;
  }
  return out;
}

std::string strip_spaces(std::string_view text, StripSpaces sides) {
  const char *p = text.data(), *end = p + text.size();
  const auto is_space = [](unicode::Decoded c) { return unicode::kind(c.code) == Kind::space; };
  while (sides.left && p < end && is_space(unicode::decode(p, end)))
    p += unicode::decode(p, end).bytes;
  while (sides.right && p < end && is_space(unicode::decode_last(p, end)))
    end -= unicode::decode_last(p, end).bytes;
  return std::string(p, end);
}

std::string apply(const NormalizerStep& step, std::string_view text, PatternScratch& scratch) {
  struct Visitor {
    std::string_view text;
    PatternScratch& scratch;
    std::string operator()(unicode::Form form) const { return unicode::normalize(text, form); }
    std::string operator()(Lowercase) const { return unicode::to_lower(text); }
    std::string operator()(StripAccents) const { return strip_accents(text); }
    std::string operator()(StripSpaces sides) const { return strip_spaces(text, sides); }
    std::string operator()(const Prepend& p) const {
      return text.empty() ? "" : p.text + std::string(text);
    }
    std::string operator()(const Replace& replace) const { return replace(text, scratch); }
    std::string operator()(ByteAlphabet) const { return to_alphabet(text); }
  };
  return std::visit(Visitor{text, scratch}, step);
}

}  // namespace

std::string Replace::operator()(std::string_view text, PatternScratch& scratch) const {
  std::string copy, out;
  const std::string_view prepared = pattern.prepare(text, copy);
  size_t done = 0, begin, end;
  for (size_t from = 0; from <= text.size() && pattern.find(prepared, from, scratch, begin, end);) {
    out.append(text, done, begin - done);
    out += content;
    done = end;
    from = end;
  }
  return out.append(text, done);
}

bool Normalizer::removes() const {
  for (const auto& step : steps_) {
    if (std::holds_alternative<StripAccents>(step)) return true;
    if (const auto* strip = std::get_if<StripSpaces>(&step); strip && strip->left) return true;
    if (const auto* replace = std::get_if<Replace>(&step); replace && replace->content.empty())
      return true;
  }
  return false;
}

std::string Normalizer::operator()(std::string_view text, PatternScratch& scratch) const {
  std::string now(text);
  for (const auto& step : steps_) now = apply(step, now, scratch);
  return now;
}

}  // namespace trireme
