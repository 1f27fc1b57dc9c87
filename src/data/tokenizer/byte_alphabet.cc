#include "data/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "data/tokenizer/unicode.h"

namespace trireme {
namespace {

struct Alphabet {
  std::array<uint16_t, 256> character{};
  std::array<int16_t, 0x144> byte{};  // -1: not of the alphabet
};

constexpr Alphabet kAlphabet = [] {
  Alphabet a;
  for (auto& b : a.byte) b = -1;
  uint16_t next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b != 0xAD);
    a.character[b] = printable ? static_cast<uint16_t>(b) : next++;
    a.byte[a.character[b]] = static_cast<int16_t>(b);
  }
  return a;
}();
static_assert(kAlphabet.character[' '] == 0x120 && kAlphabet.character[0xAD] == 0x143);

}  // namespace

char32_t alphabet_character(unsigned char byte) { return kAlphabet.character[byte]; }

std::string to_alphabet(std::string_view bytes) {
  std::string spelled;
  spelled.reserve(bytes.size() * 5 / 4);
  for (const char b : bytes) unicode::append(spelled, alphabet_character(static_cast<uint8_t>(b)));
  return spelled;
}

std::optional<std::string> from_alphabet(std::string_view spelled) {
  std::string bytes;
  const char *p = spelled.data(), *const end = p + spelled.size();
  while (p < end) {
    const auto [code, length] = unicode::decode(p, end);
    if (code >= kAlphabet.byte.size() || kAlphabet.byte[code] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte[code]);
    p += length;
  }
  return bytes;
}

}  // namespace trireme
