#include "base/recipe/toml_reader.h"

#include <toml++/toml.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace trireme {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
// toml++ and we walk tables by recursion: far above any recipe, far below the end of the stack.
constexpr size_t kMaxDepth = 64;

std::string place(const std::filesystem::path& path, const toml::source_region& source) {
  return concat(path.string(), ":", source.begin.line);
}

auto position(const toml::node& node) {
  return std::tuple(node.source().begin.line, node.source().begin.column);
}

// A table's members in the order of the file; toml++ keeps them by name.
std::vector<std::pair<std::string, const toml::node*>> members(const toml::table& table) {
  std::vector<std::pair<std::string, const toml::node*>> list;
  for (const auto& [key, node] : table) list.emplace_back(std::string(key.str()), &node);
  std::ranges::stable_sort(list, {}, [](const auto& member) { return position(*member.second); });
  return list;
}

class Flattener {
 public:
  explicit Flattener(std::filesystem::path path) : path_(std::move(path)) {}

  void add_table(const std::string& prefix, const toml::table& table) {
    for (const auto& [name, node] : members(table)) {
      check_name(name, *node);
      const std::string full = prefix.empty() ? name : prefix + "." + name;
      const int line = static_cast<int>(node->source().begin.line);
      if (const toml::table* inner = node->as_table()) {
        file_.sections.push_back({full, line});
        add_table(full, *inner);
      } else {
        file_.keys.push_back({full, value(full, *node), line});
      }
    }
  }

  TomlFile take() {
    std::ranges::stable_sort(file_.keys, {}, &TomlKey::line);
    std::ranges::stable_sort(file_.sections, {}, &TomlSection::line);
    return std::move(file_);
  }

 private:
  // A dot or "=" would make the name ambiguous in "section.key=value".
  void check_name(std::string_view name, const toml::node& node) const {
    const bool plain = std::ranges::none_of(
        name, [](char c) { return c == '.' || c == '=' || static_cast<unsigned char>(c) < 0x20; });
    TRIREME_CHECK(plain && !name.empty(), place(path_, node.source()), ": the name ",
                  name_to_toml(name), " cannot be used: it is empty or holds a dot or '='");
  }

  Value value(const std::string& name, const toml::node& node) const {
    if (const auto* integer = node.as_integer()) return integer->get();
    if (const auto* number = node.as_floating_point()) return number->get();
    if (const auto* flag = node.as_boolean()) return flag->get();
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* array = node.as_array()) {
      Value::List list;
      for (const toml::node& item : *array) list.push_back(value(name, item));
      return list;
    }
    if (const auto* table = node.as_table()) {
      Value::Table fields;
      for (const auto& [field, item] : members(*table)) {
        check_name(field, *item);
        fields.emplace_back(field, value(name + "." + field, *item));
      }
      return fields;
    }
    throw InputError(concat(place(path_, node.source()), ": ", name,
                            " is a date or a time, which no key of a recipe takes"));
  }

  std::filesystem::path path_;
  TomlFile file_;
};

// The end of the string that begins at `at` with a quote: behind its closing quotes, or where it
// must be ill-formed.
size_t end_of_string(std::string_view text, size_t at) {
  const char quote = text[at];
  const bool multiline = text.substr(at, 3) == std::string(3, quote);
  for (at += multiline ? 3 : 1; at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"') ++at;
    else if (multiline && text.substr(at, 3) == std::string(3, quote)) return at + 3;
    else if (!multiline && text[at] == quote) return at + 1;
    else if (!multiline && text[at] == '\n') return at;
  }
  return text.size();
}

// Refuses names such as a.a.a.…, for which toml++ builds a table a part and then overflows the
// stack.
void check_depth(std::string_view text, const std::filesystem::path& path) {
  size_t dots = 0;  // in the name at hand, if it is one
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '#') at = std::min(text.find('\n', at), text.size());
    else if (c == '"' || c == '\'') at = end_of_string(text, at);
    else ++at;
    if (c == '.') ++dots;
    else if (std::string_view("\n=,#[{").find(c) != std::string_view::npos) dots = 0;
    TRIREME_CHECK(dots <= kMaxDepth, path.string(), ":",
                  1 + std::ranges::count(text.substr(0, at), '\n'), ": a name of more than ",
                  kMaxDepth, " parts");
  }
}

}  // namespace

TomlFile read_toml(std::string_view text, const std::filesystem::path& path) {
  TRIREME_CHECK(text.size() <= kMaxBytes, path.string(), " is no recipe: it has ", text.size(),
                " bytes, and a recipe has ", kMaxBytes, " at most");
  check_depth(text, path);
  Flattener flattener(path);
  try {
    const toml::table table = toml::parse(text, path.string());
    flattener.add_table("", table);
  } catch (const toml::parse_error& error) {
    const bool twice = error.description().find("redefine") != std::string_view::npos;
    throw InputError(concat(place(path, error.source()),
                            twice ? ": given twice: " : ": bad TOML: ", error.description()));
  }
  return flattener.take();
}

std::optional<std::vector<TomlKey>> read_toml_value(const std::string& name,
                                                    std::string_view text) {
  const std::string line = concat("value = ", text);
  check_depth(line, "command line");
  try {
    const toml::table table = toml::parse(line);
    if (table.size() != 1) return std::nullopt;
    Flattener flattener("command line");
    flattener.add_table("", table);
    std::vector<TomlKey> keys = flattener.take().keys;
    for (TomlKey& key : keys) {
      key.name.replace(0, std::string_view("value").size(), name);
      key.line = 0;
    }
    return keys;
  } catch (const toml::parse_error&) {
    return std::nullopt;
  }
}

}  // namespace trireme
