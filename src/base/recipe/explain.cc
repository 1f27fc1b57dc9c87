#include "base/recipe/explain.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/recipe/terms.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

std::string origin(const Recipe& recipe, const Recipe::Entry& entry) {
  switch (entry.origin) {
    case Origin::recipe:
    case Origin::command_line:
      return recipe.where(entry.name);
    case Origin::default_value:
      return "default";
    case Origin::derived:
      break;
  }
  return concat("derived from ", entry.spec->derived_from);
}

// A list of records is shown as it may be written: a bare text for a record with one field.
Value compact(const KeySpec& key, const Value& value) {
  if (key.type != KeyType::records) return value;
  Value::List list;
  for (const Value& record : *value.get<Value::List>()) {
    const auto& fields = *record.get<Value::Table>();
    const bool bare = fields.size() == 1 && fields[0].second.get<std::string>();
    list.push_back(bare ? fields[0].second : record);
  }
  return list;
}

// The part of a name that its section header shows: "" for task, "run" for run.name, "feature.user"
// for feature.user.kind.
std::string_view header(const Recipe::Entry& entry) {
  const std::string_view name = entry.name;
  const size_t dot = name.find('.');
  if (dot == name.npos) return "";
  if (entry.spec->name.find('*') == std::string_view::npos) return name.substr(0, dot);
  return name.substr(0, name.find('.', dot + 1));
}

// Letters that a terminal shows, for alignment.
size_t width(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Json to_json(const Value& value) {
  if (const auto* list = value.get<Value::List>()) {
    Json items = Json::array();
    for (const Value& item : *list) items.push_back(to_json(item));
    return items;
  }
  if (const auto* table = value.get<Value::Table>()) {
    Json fields = Json::object();
    for (const auto& [name, item] : *table) fields[name] = to_json(item);
    return fields;
  }
  if (const auto* integer = value.get<int64_t>()) return *integer;
  if (const auto* number = value.get<double>()) return *number;
  if (const auto* flag = value.get<bool>()) return *flag;
  return *value.get<std::string>();
}

class Freezer {
 public:
  Freezer(const Recipe& recipe, std::string& text) : recipe_(recipe), text_(text) {}

  void add(const Recipe::Entry& entry) {
    if (!entry.value) return;
    const std::string_view section = header(entry);
    if (section != section_) open(section);
    std::string_view rest = std::string_view(entry.name);
    if (!section.empty()) rest.remove_prefix(section.size() + 1);
    const size_t dot = rest.find('.');
    const std::string value = to_toml(compact(*entry.spec, *entry.value));
    if (dot == rest.npos) {
      close_table();
      text_ += concat(is_redundant(entry) ? "# " : "", rest, " = ", value, comment(entry), "\n");
      return;
    }
    if (rest.substr(0, dot) != table_) {
      close_table();
      table_ = rest.substr(0, dot);
    }
    fields_ += concat(fields_.empty() ? "" : ", ", rest.substr(dot + 1), " = ", value);
  }

  void close_table() {
    if (!table_.empty()) text_ += concat(table_, " = { ", fields_, " }\n");
    table_.clear();
    fields_.clear();
  }

 private:
  void open(std::string_view section) {
    close_table();
    section_ = section;
    std::string shown;
    for (const std::string& part : split(section, "."))
      shown += (shown.empty() ? "" : ".") + name_to_toml(part);
    text_ += concat("\n[", shown, "]\n");
  }

  std::string comment(const Recipe::Entry& entry) const {
    return entry.origin == Origin::recipe ? "" : "  # " + origin(recipe_, entry);
  }

  // Derived, while another key of its group is given: both together would not load.
  bool is_redundant(const Recipe::Entry& entry) const {
    if (entry.origin != Origin::derived) return false;
    return std::ranges::any_of(recipe_.schema().groups, [&](const KeyGroup& group) {
      return std::ranges::find(group.keys, entry.name) != group.keys.end() &&
             std::ranges::any_of(group.keys, [&](std::string_view key) {
               return key != entry.name && recipe_.has(key);
             });
    });
  }

  const Recipe& recipe_;
  std::string& text_;
  std::string_view section_;
  std::string table_, fields_;  // the inline table that is being collected
};

}  // namespace

std::string explain_table(const Recipe& recipe) {
  struct Line {
    std::string key, value, origin;
  };
  std::vector<Line> lines;
  std::string_view section;
  size_t key_width = 0, value_width = 0;
  for (const Recipe::Entry& entry : recipe.entries()) {
    if (!entry.value && entry.origin != Origin::derived) continue;
    if (header(entry) != section && !lines.empty()) lines.push_back({});
    section = header(entry);
    std::string value = entry.value ? to_toml(compact(*entry.spec, *entry.value))
                                    : std::string("(known when the run starts)");
    if (entry.value && !entry.spec->unit.empty()) value += concat(" ", entry.spec->unit);
    key_width = std::max(key_width, width(entry.name));
    if (width(value) <= 40) value_width = std::max(value_width, width(value));
    lines.push_back({entry.name, value, origin(recipe, entry)});
  }
  const auto padded = [](const std::string& text, size_t to) {
    return text + std::string(std::max(to, width(text)) - width(text) + 2, ' ');
  };
  std::string text;
  for (const Line& line : lines)
    text += line.key.empty() ? "\n"
                             : padded(line.key, key_width) + padded(line.value, value_width) +
                                   line.origin + "\n";
  return text;
}

std::string explain_json(const Recipe& recipe) {
  static constexpr const char* origins[] = {"recipe", "command line", "default", "derived"};
  Json values = Json::array();
  for (const Recipe::Entry& entry : recipe.entries()) {
    if (!entry.value && entry.origin != Origin::derived) continue;
    Json item{{"key", entry.name},
              {"value", entry.value ? to_json(compact(*entry.spec, *entry.value)) : Json()},
              {"unit", entry.spec->unit.empty() ? Json() : Json(entry.spec->unit)},
              {"origin", origins[static_cast<size_t>(entry.origin)]},
              {"line", entry.line > 0 ? Json(entry.line) : Json()}};
    values.push_back(std::move(item));
  }
  const Json document{{"recipe", recipe.path().string()}, {"values", std::move(values)}};
  return document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string frozen_recipe(const Recipe& recipe, std::span<const std::string> comments) {
  std::string text;
  for (const std::string& comment : comments)
    for (const std::string& line : split(comment, "\n")) text += concat("# ", line, "\n");
  if (!comments.empty()) text += "\n";
  Freezer freezer(recipe, text);
  for (const Recipe::Entry& entry : recipe.entries()) freezer.add(entry);
  freezer.close_table();
  return text;
}

}  // namespace trireme
