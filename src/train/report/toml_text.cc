#include "train/report/toml_text.h"

#include <algorithm>
#include <cctype>
#include <cstring>

namespace trireme::report {
namespace {

void span(Html& out, Literal name, std::string_view text) {
  if (!text.empty()) out.add("<span class=\"").add(name).add("\">").text(text).add("</span>");
}

// Where the string that begins at text[0] ends: basic or literal, on one line.
size_t string_end(std::string_view text) {
  const char quote = text[0];
  for (size_t i = 1; i < text.size(); ++i) {
    if (text[i] == quote) return i + 1;
    if (text[i] == '\\' && quote == '"') ++i;
  }
  return text.size();
}

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '+' ||
         c == '.' || c == ':';
}

bool is_value(std::string_view word) {
  return word == "true" || word == "false" || word == "inf" || word == "nan" ||
         std::isdigit(static_cast<unsigned char>(word[0])) ||
         ((word[0] == '-' || word[0] == '+') && word.size() > 1);
}

// Is the word at the head of `text` a key? Then "=" follows behind spaces.
bool is_key(std::string_view after_word) {
  const size_t next = after_word.find_first_not_of(" \t");
  return next != std::string_view::npos && after_word[next] == '=';
}

void line(Html& out, std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first != std::string_view::npos && text[first] == '[' && text.find('=') == text.npos) {
    const size_t end = std::min(text.find('#'), text.size());
    span(out, "t-table", text.substr(0, end));
    span(out, "t-comment", text.substr(end));
    return;
  }
  while (!text.empty()) {
    size_t bytes = 1;
    if (text[0] == '#') return span(out, "t-comment", text);
    if (text[0] == '"' || text[0] == '\'') {
      bytes = string_end(text);
      if (is_key(text.substr(bytes))) span(out, "t-key", text.substr(0, bytes));
      else span(out, "t-string", text.substr(0, bytes));
    } else if (in_word(text[0])) {
      while (bytes < text.size() && in_word(text[bytes])) ++bytes;
      const std::string_view word = text.substr(0, bytes);
      if (is_key(text.substr(bytes))) span(out, "t-key", word);
      else if (is_value(word)) span(out, "t-value", word);
      else out.text(word);
    } else {  // the whole run, so that no character of several bytes is cut
      while (bytes < text.size() && !in_word(text[bytes]) && !std::strchr("\"'#", text[bytes]))
        ++bytes;
      out.text(text.substr(0, bytes));
    }
    text.remove_prefix(bytes);
  }
}

}  // namespace

Html highlighted_toml(std::string_view text) {
  Html out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    line(out, text.substr(0, end));
    if (end < text.size()) out.add("\n");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace trireme::report
