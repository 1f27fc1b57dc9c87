#include "data/utf8.h"

#include <cstdint>
#include <cstring>

namespace trireme {
namespace {

// Length of the sequence at the front, 0 when it is none. RFC 3629, section 4.
size_t sequence_length(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const auto continues = [&](size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
    return i < s.size() && byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const unsigned low = first == 0xE0 ? 0xA0 : 0x80, high = first == 0xED ? 0x9F : 0xBF;
    return continues(1, low, high) && continues(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const unsigned low = first == 0xF0 ? 0x90 : 0x80, high = first == 0xF4 ? 0x8F : 0xBF;
    return continues(1, low, high) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

bool is_foreign_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 && std::strchr("\b\t\n\r\f\v\x1b", c) == nullptr;
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view bytes) {
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t eight;
    while (at + sizeof eight <= bytes.size()) {  // ASCII, eight bytes at once
      std::memcpy(&eight, bytes.data() + at, sizeof eight);
      if (eight & 0x8080808080808080) break;
      at += sizeof eight;
    }
    if (at == bytes.size()) break;
    const size_t length = sequence_length(bytes.substr(at));
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::optional<size_t> find_binary(std::string_view bytes) {
  if (const size_t nul = bytes.find('\0'); nul != std::string_view::npos) return nul;
  std::optional<size_t> first;
  size_t count = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    if (is_foreign_control(bytes[i])) {
      if (!first) first = i;
      ++count;
    }
  return count * 10 > bytes.size() * 3 ? first : std::nullopt;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string text;
  bool replaced = false;  // one U+FFFD for a run of stray bytes
  while (!bytes.empty()) {
    const size_t length = sequence_length(bytes);
    if (length > 0) text.append(bytes.substr(0, length));
    else if (!replaced) text.append("\xEF\xBF\xBD");
    replaced = length == 0;
    bytes.remove_prefix(length > 0 ? length : 1);
  }
  return text;
}

}  // namespace trireme
