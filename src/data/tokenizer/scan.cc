#include "data/tokenizer/scan.h"

#include <array>
#include <cstdint>

#include "data/tokenizer/unicode.h"

namespace trireme {
namespace {

using unicode::Kind;

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// The same language, as some files spell it.
constexpr std::string_view kGpt2Short =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<Kind, 128> kAsciiKinds = [] {
  std::array<Kind, 128> kinds{};
  for (int c = 0; c < 128; ++c) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) kinds[c] = Kind::letter;
    else if (c >= '0' && c <= '9') kinds[c] = Kind::number;
    else if (c == ' ' || (c >= '\t' && c <= '\r')) kinds[c] = Kind::space;
    else kinds[c] = Kind::other;
  }
  return kinds;
}();

struct Seen {
  Kind kind;
  uint32_t bytes;
};

inline Seen look(const char* p, const char* end) {
  const auto c = static_cast<uint8_t>(*p);
  if (c < 0x80) [[likely]]
    return {kAsciiKinds[c], 1};
  const auto [code, bytes] = unicode::decode(p, end);
  return {unicode::kind(code), bytes};
}

inline const char* run_end(const char* p, const char* end, Kind kind) {
  while (p < end) {
    const Seen now = look(p, end);
    if (now.kind != kind) break;
    p += now.bytes;
  }
  return p;
}

inline bool is_line_end(char c) { return c == '\r' || c == '\n'; }

inline const char* line_ends(const char* p, const char* end) {
  while (p < end && is_line_end(*p)) ++p;
  return p;
}

// White space up to a word, without its last character, which may join that word; all of it at the
// end of the text, and one that stands alone. REQUIRES: white space at p.
const char* spaces_end(const char* p, const char* end) {
  const char* const begin = p;
  const char* last = p;
  while (p < end) {
    const Seen now = look(p, end);
    if (now.kind != Kind::space) return last == begin ? p : last;
    last = p;
    p += now.bytes;
  }
  return p;
}

char lower_ascii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

// The end of 's 't 're 've 'm 'll 'd, or begin. REQUIRES: *begin == '\''.
const char* contraction_end(const char* begin, const char* end, bool any_case) {
  const auto at = [&](int i) {
    if (end - begin <= i) return '\0';
    return any_case ? lower_ascii(begin[i]) : begin[i];
  };
  const char a = at(1), b = at(2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return begin + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return begin + 3;
  // Without regard to case, U+017F (long s) is an s.
  if (any_case && end - begin >= 3 && begin[1] == '\xC5' && begin[2] == '\xBF') return begin + 3;
  return begin;
}

const char* gpt2_end(const char* begin, const char* end) {
  if (*begin == '\'') {
    const char* const after = contraction_end(begin, end, false);
    if (after != begin) return after;
  }
  const char* p = begin;
  Seen first = look(p, end);
  if (*p == ' ' && p + 1 < end) {
    const Seen next = look(p + 1, end);
    if (next.kind != Kind::space) ++p, first = next;
  }
  if (first.kind == Kind::space) return spaces_end(begin, end);
  return run_end(p + first.bytes, end, first.kind);
}

const char* llama3_end(const char* begin, const char* end, int most_digits) {
  if (*begin == '\'') {
    const char* const after = contraction_end(begin, end, true);
    if (after != begin) return after;
  }
  const Seen first = look(begin, end);
  const char* p = begin + first.bytes;
  if (first.kind == Kind::letter) return run_end(p, end, Kind::letter);
  if (first.kind == Kind::number) {
    for (int digits = 1; digits < most_digits && p < end; ++digits) {
      const Seen now = look(p, end);
      if (now.kind != Kind::number) break;
      p += now.bytes;
    }
    return p;
  }
  const Seen next = p < end ? look(p, end) : Seen{Kind::space, 0};
  if (next.kind == Kind::letter && !is_line_end(*begin))
    return run_end(p + next.bytes, end, Kind::letter);
  if (first.kind == Kind::other) return line_ends(run_end(p, end, Kind::other), end);
  if (*begin == ' ' && next.kind == Kind::other)
    return line_ends(run_end(p + next.bytes, end, Kind::other), end);
  // White space: up to its last line end, if there is one.
  const char* const stop = run_end(p, end, Kind::space);
  for (const char* last = stop; last > begin; --last)
    if (is_line_end(last[-1])) return last;
  return spaces_end(begin, end);
}

}  // namespace

std::optional<WordStyle> style_of(std::string_view expression) {
  if (expression == kGpt2 || expression == kGpt2Short) return WordStyle::gpt2;
  if (expression == kLlama3) return WordStyle::llama3;
  if (expression == kQwen2) return WordStyle::qwen2;
  return std::nullopt;
}

std::string_view expression_of(WordStyle style) {
  return style == WordStyle::gpt2 ? kGpt2 : style == WordStyle::llama3 ? kLlama3 : kQwen2;
}

const char* word_end(WordStyle style, const char* begin, const char* end) {
  if (style == WordStyle::gpt2) return gpt2_end(begin, end);
  return llama3_end(begin, end, style == WordStyle::llama3 ? 3 : 1);
}

}  // namespace trireme
