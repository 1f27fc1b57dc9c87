// One value of a recipe, as TOML has it: an integer, a number, a flag, a text, a list, or an inline
// table (its fields in file order).
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace trireme {

struct Value {
  using List = std::vector<Value>;
  using Table = std::vector<std::pair<std::string, Value>>;

  Value(bool flag) : data(flag) {}
  Value(std::integral auto integer) : data(static_cast<int64_t>(integer)) {}
  Value(std::floating_point auto number) : data(static_cast<double>(number)) {}
  Value(std::string text) : data(std::move(text)) {}
  Value(std::string_view text) : data(std::string(text)) {}
  Value(const char* text) : data(std::string(text)) {}
  Value(List list) : data(std::move(list)) {}
  Value(Table table) : data(std::move(table)) {}

  // Null when the value is of another type. No conversions: 1 is an integer and no number.
  template <class T>
  const T* get() const {
    return std::get_if<T>(&data);
  }

  bool operator==(const Value&) const = default;

  std::variant<int64_t, double, bool, std::string, List, Table> data;
};

// As TOML, on one line, and read back as the same value: numbers always show a point or an exponent
// and all digits that set them apart, texts are quoted, names are quoted where they must be.
std::string to_toml(const Value& value);
std::string name_to_toml(std::string_view name);

// "an integer", "a number", "a flag", "a text", "a list", "a table".
std::string_view type_name(const Value& value);

}  // namespace trireme
