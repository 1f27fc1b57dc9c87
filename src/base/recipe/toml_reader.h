// TOML text as a flat list of keys with their lines. Knows no schema.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/recipe/value.h"

namespace trireme {

struct TomlKey {
  std::string name;  // "section.key"; inline tables are sections too, except in lists
  Value value;
  int line;
};

struct TomlSection {
  std::string name;
  int line;
};

// Both in the order of the file.
struct TomlFile {
  std::vector<TomlKey> keys;
  std::vector<TomlSection> sections;
};

// InputError with file and line: bad TOML, a key twice, a name or a value that no recipe can hold
// (names with dots, dates), more than 1 MB.
TomlFile read_toml(std::string_view text, const std::filesystem::path& path);

// The value of the command line, "name = text"; nullopt when `text` is no TOML value. An inline
// table becomes several keys, "name.field".
std::optional<std::vector<TomlKey>> read_toml_value(const std::string& name, std::string_view text);

}  // namespace trireme
