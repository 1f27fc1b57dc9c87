#include "base/recipe/value.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace trireme {
namespace {

std::string number_to_toml(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  std::string shown(text, end);
  if (shown.find_first_of(".e") == std::string::npos) shown += ".0";
  return shown;
}

std::string text_to_toml(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') quoted += {'\\', c};
    else if (c == '\n') quoted += "\\n";
    else if (c == '\t') quoted += "\\t";
    else if (c == '\r') quoted += "\\r";
    else if (byte < 0x20 || byte == 0x7f) {
      static constexpr char digits[] = "0123456789ABCDEF";
      quoted += {'\\', 'u', '0', '0', digits[byte >> 4], digits[byte & 15]};
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

std::string list_to_toml(const Value::List& list) {
  std::string text = "[";
  for (const Value& item : list) text += (text.size() > 1 ? ", " : "") + to_toml(item);
  return text + "]";
}

std::string table_to_toml(const Value::Table& table) {
  std::string text = "{";
  for (const auto& [name, value] : table)
    text += (text.size() > 1 ? ", " : " ") + name_to_toml(name) + " = " + to_toml(value);
  return text + " }";
}

}  // namespace

std::string to_toml(const Value& value) {
  if (const auto* integer = value.get<int64_t>()) return std::to_string(*integer);
  if (const auto* number = value.get<double>()) return number_to_toml(*number);
  if (const auto* flag = value.get<bool>()) return *flag ? "true" : "false";
  if (const auto* text = value.get<std::string>()) return text_to_toml(*text);
  if (const auto* list = value.get<Value::List>()) return list_to_toml(*list);
  return table_to_toml(*value.get<Value::Table>());
}

std::string name_to_toml(std::string_view name) {
  for (const char c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-')
      return text_to_toml(name);
  return name.empty() ? "\"\"" : std::string(name);
}

std::string_view type_name(const Value& value) {
  static constexpr std::string_view names[] = {"an integer", "a number", "a flag",
                                               "a text",     "a list",   "a table"};
  return names[value.data.index()];
}

}  // namespace trireme
