// GPT-2's spelling of bytes: each of the 256 bytes is written as one printable character, so that
// any byte sequence is a readable string. Bytes that are printable in Latin-1 stand for themselves;
// the others are U+0100, U+0101, … in their order (a space is U+0120, "Ġ").
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme {

char32_t alphabet_character(unsigned char byte);
std::string to_alphabet(std::string_view bytes);
// nullopt: a character is not of the alphabet.
std::optional<std::string> from_alphabet(std::string_view spelled);

}  // namespace trireme
