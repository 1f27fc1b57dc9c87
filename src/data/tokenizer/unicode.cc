#include "data/tokenizer/unicode.h"

#include <algorithm>
#include <memory>
#include <span>

#include "data/tokenizer/unicode_tables.h"

namespace trireme::unicode {
namespace {

constexpr char32_t kCodes = 0x110000;

Kind kind_of_category(Category c) {
  if (c <= Category::Lo) return Kind::letter;
  if (c >= Category::Nd && c <= Category::No) return Kind::number;
  if (c >= Category::Zs && c <= Category::Zp) return Kind::space;
  return Kind::other;
}

std::unique_ptr<uint8_t[]> expand_properties() {
  auto table = std::make_unique<uint8_t[]>(kCodes);
  const std::span runs(category_runs, category_runs_count);
  for (size_t i = 0; i < runs.size(); ++i) {
    const auto category = runs[i] & 31;
    const uint32_t end = i + 1 < runs.size() ? runs[i + 1] >> 5 : kCodes;
    const auto kind = kind_of_category(static_cast<Category>(category));
    std::fill(table.get() + (runs[i] >> 5), table.get() + end,
              static_cast<uint8_t>(category | static_cast<uint32_t>(kind) << 5));
  }
  // The controls that are white space: tab to carriage return, and next line.
  for (const char32_t c : {0x09, 0x0A, 0x0B, 0x0C, 0x0D, 0x85})
    table[c] = static_cast<uint8_t>(table[c] | static_cast<uint8_t>(Kind::space) << 5);
  const std::span changed(unicode::changed_since_14, changed_since_14_count);
  for (size_t i = 0; i < changed.size(); i += 2)
    for (uint32_t c = changed[i]; c <= changed[i + 1]; ++c) table[c] |= 0x80;
  return table;
}

// `ranges`: first, last, first, last, …, ascending.
bool in_ranges(std::span<const uint32_t> ranges, char32_t code) {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), code) - ranges.begin();
  return after % 2 == 1 || (after > 0 && ranges[after - 1] == code);
}

bool is_continuation(char c) { return (c & 0xC0) == 0x80; }

}  // namespace

Decoded decode(const char* begin, const char* end) {
  const auto at = [&](int i) { return static_cast<uint8_t>(begin[i]); };
  const uint32_t a = at(0);
  const auto left = end - begin;
  constexpr Decoded none{kNoCharacter, 1};
  if (a < 0x80) return {a, 1};
  if (a < 0xC2 || left < 2 || !is_continuation(begin[1])) return none;
  const uint32_t b = at(1) & 0x3F;
  if (a < 0xE0) return {(a & 0x1F) << 6 | b, 2};
  if (left < 3 || !is_continuation(begin[2])) return none;
  const uint32_t c = at(2) & 0x3F;
  if (a < 0xF0) {
    const uint32_t code = (a & 0x0F) << 12 | b << 6 | c;
    if (code < 0x800 || (code >= 0xD800 && code < 0xE000)) return none;
    return {code, 3};
  }
  if (a > 0xF4 || left < 4 || !is_continuation(begin[3])) return none;
  const uint32_t code = (a & 0x07) << 18 | b << 12 | c << 6 | (at(3) & 0x3F);
  if (code < 0x10000 || code >= kCodes) return none;
  return {code, 4};
}

Decoded decode_last(const char* begin, const char* end) {
  for (int bytes = 1; bytes <= 4 && bytes <= end - begin; ++bytes) {
    const Decoded found = decode(end - bytes, end);
    if (found.code != kNoCharacter && found.bytes == static_cast<uint32_t>(bytes)) return found;
    if (!is_continuation(end[-bytes])) break;
  }
  return {kNoCharacter, 1};
}

void append(std::string& text, char32_t code) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    tail(6), tail(0);
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    tail(12), tail(6), tail(0);
  }
}

size_t incomplete_tail(std::string_view text) {
  for (size_t bytes = 1; bytes <= 3 && bytes <= text.size(); ++bytes) {
    const auto lead = static_cast<uint8_t>(text[text.size() - bytes]);
    if (is_continuation(static_cast<char>(lead))) continue;
    const size_t wanted = lead >= 0xF0 && lead <= 0xF4 ? 4
                          : lead >= 0xE0               ? 3
                          : lead >= 0xC2               ? 2
                                                       : 1;
    if (lead > 0xF4 || wanted <= bytes) return 0;
    if (bytes == 1) return 1;
    // The second byte decides whether the lead can still become a character.
    const auto second = static_cast<uint8_t>(text[text.size() - bytes + 1]);
    const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    return second >= low && second <= high ? bytes : 0;
  }
  return 0;
}

const uint8_t* properties() {
  static const std::unique_ptr<uint8_t[]> table = expand_properties();
  return table.get();
}

Category category(char32_t code) {
  return code < kCodes ? static_cast<Category>(properties()[code] & 31) : Category::Cn;
}

Kind kind(char32_t code) { return code < kCodes ? kind_of(properties()[code]) : Kind::other; }

bool is_word(char32_t code) {
  const Category c = category(code);
  if (c <= Category::Nl || c == Category::Pc) return true;
  // Join controls, and the symbols that are alphabetic: circled and squared letters.
  return code == 0x200C || code == 0x200D || (code >= 0x24B6 && code <= 0x24E9) ||
         (code >= 0x1F130 && code <= 0x1F149) || (code >= 0x1F150 && code <= 0x1F169) ||
         (code >= 0x1F170 && code <= 0x1F189);
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    const Category c = category(code);
    return c >= Category::Pc && c <= Category::So;
  }
  return in_ranges({punctuation_8, punctuation_8_count}, code);
}

bool is_mark(char32_t code) { return in_ranges({marks_9, marks_9_count}, code); }

}  // namespace trireme::unicode
