// Characters as tokenizers see them: UTF-8, general categories, normal forms, lower case.
//
// The tables and the versions of Unicode that they are of: tools/unicode_tables.py. They are
// expanded once, on first use (1.1 MB). Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::unicode {

// A byte that is part of no well-formed character: it counts as a character, of no category.
constexpr char32_t kNoCharacter = 0xFFFFFFFF;

struct Decoded {
  char32_t code;
  uint32_t bytes;
};
// The character at the beginning. REQUIRES: begin < end.
Decoded decode(const char* begin, const char* end);
// The last character. REQUIRES: begin < end.
Decoded decode_last(const char* begin, const char* end);
void append(std::string& text, char32_t code);  // REQUIRES: a character, not kNoCharacter
// The bytes at the end that begin a character and do not finish it: 0 to 3.
size_t incomplete_tail(std::string_view text);

// In the order of tools/unicode_tables.py.
enum class Category : uint8_t {
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co,
  Cn,
};
// What the patterns of GPT-2 and its children tell apart.
enum class Kind : uint8_t { other, letter, number, space };

// One byte for each code: category in bits 0 to 4, kind in bits 5 and 6, and bit 7 for characters
// whose category is not that of Unicode 14.
const uint8_t* properties();
constexpr Kind kind_of(uint8_t property) { return static_cast<Kind>(property >> 5 & 3); }
constexpr bool is_newer_than_14(uint8_t property) { return property >> 7; }

Category category(char32_t code);    // Cn for kNoCharacter
Kind kind(char32_t code);            // other for kNoCharacter; space is White_Space
bool is_word(char32_t code);         // \w of Rust's regex crate
bool is_punctuation(char32_t code);  // ASCII's punctuation and symbols; Unicode 8's category P
bool is_mark(char32_t code);         // category M, Unicode 9

enum class Form { nfc, nfd, nfkc, nfkd };
// Bytes that are no characters stay where they are, and nothing is composed or moved across them.
std::string normalize(std::string_view text, Form form);
std::string to_lower(std::string_view text);  // character by character, without context

}  // namespace trireme::unicode
