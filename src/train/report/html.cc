#include "train/report/html.h"

#include <cmath>
#include <cstdint>
#include <cstdio>

#include "base/error.h"

namespace trireme::report {
namespace {

// The bytes of the UTF-8 sequence that `text` begins with, 0 if it begins with none (RFC 3629).
size_t sequence_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < bytes) return 0;
  uint8_t low = 0x80, high = 0xbf;  // of the second byte: no overlong form, surrogate or > U+10FFFF
  if (first == 0xe0) low = 0xa0;
  if (first == 0xed) high = 0x9f;
  if (first == 0xf0) low = 0x90;
  if (first == 0xf4) high = 0x8f;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < bytes; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  return bytes;
}

void append_control_picture(std::string& out, uint8_t control) {
  out += "\xe2\x90";
  out += static_cast<char>(0x80 + (control == 0x7f ? 0x21 : control));  // U+2400 + control, U+2421
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  while (!text.empty()) {
    const size_t bytes = sequence_bytes(text);
    const auto first = static_cast<uint8_t>(text[0]);
    if (bytes == 0) out += "\xef\xbf\xbd";
    else if (bytes == 2 && first == 0xc2 && static_cast<uint8_t>(text[1]) < 0xa0)
      out += "\xef\xbf\xbd";  // C1 controls
    else if (bytes > 1) out += text.substr(0, bytes);
    else if (first == '&') out += "&amp;";
    else if (first == '<') out += "&lt;";
    else if (first == '>') out += "&gt;";
    else if (first == '"') out += "&quot;";
    else if (first == '\'') out += "&#39;";
    else if ((first < 0x20 && first != '\n' && first != '\t') || first == 0x7f)
      append_control_picture(out, first);
    else out += text[0];
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  return out;
}

Html& Html::number(double value, int decimals) {
  TRIREME_ASSERT(std::isfinite(value), "markup with the number ", value);
  char digits[64];
  int size = std::snprintf(digits, sizeof digits, "%.*f", decimals, value);
  if (decimals > 0) {
    while (digits[size - 1] == '0') --size;
    if (digits[size - 1] == '.') --size;
  }
  std::string_view shortest(digits, static_cast<size_t>(size));
  out_ += shortest == "-0" ? "0" : shortest;
  return *this;
}

Html json_data(const std::string& json) {
  Html html;
  html.out_ = "<script type=\"application/json\">";
  for (const char c : json) {
    if (c == '<') html.out_ += "\\u003c";  // nothing in it can close the element or open a comment
    else html.out_ += c;
  }
  html.out_ += "</script>";
  return html;
}

Html asset(std::string_view content) {
  Html html;
  html.out_ = content;
  return html;
}

}  // namespace trireme::report
