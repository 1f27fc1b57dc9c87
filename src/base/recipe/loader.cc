// From text and overrides to a Recipe, in this order: keys as they are written; overrides; each key
// against its row of the schema, in the order of the file, so that the first error is the topmost;
// then, in the order of the schema, conditions, defaults and missing keys; then what is derived;
// then what must go together.
#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/nearest.h"
#include "base/recipe/convert.h"
#include "base/recipe/recipe.h"
#include "base/recipe/terms.h"
#include "base/recipe/toml_reader.h"

namespace trireme {
namespace {

bool is_below(std::string_view name, std::string_view section) {
  return name.size() > section.size() + 1 && name.starts_with(section) &&
         name[section.size()] == '.';
}

std::pair<std::string_view, std::string_view> section_and_leaf(std::string_view name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

// A key or section that the schema does not have: what may have been meant, and else what there is.
std::string suggestion(const Schema& schema, std::string_view name) {
  const auto [section, leaf] = section_and_leaf(name);
  std::vector<std::string> all, leaves, elsewhere;
  for (const KeySpec& key : schema.keys) {
    if (schema.records_of(key)) continue;
    const auto [key_section, key_leaf] = section_and_leaf(key.name);
    all.emplace_back(key.name);
    if (key_section == section) leaves.emplace_back(key_leaf);
    if (key_leaf == leaf) elsewhere.emplace_back(key.name);
  }
  if (const auto meant = nearest(leaf, leaves))
    return concat("; did you mean ", section, section.empty() ? "" : ".", *meant, "?");
  if (!elsewhere.empty()) return concat("; did you mean ", join_or(elsewhere), "?");
  if (!leaves.empty() && !section.empty()) return concat("\n[", section, "] has ", join_or(leaves));
  if (const auto meant = nearest(name, all)) return concat("; did you mean ", *meant, "?");
  return "\nthe keys are listed by: trireme help recipe";
}

}  // namespace

class RecipeLoader {
 public:
  RecipeLoader(const std::filesystem::path& path, const Schema& schema) : schema_(schema) {
    recipe_.path_ = path;
    recipe_.schema_ = &schema;
  }

  Recipe load(std::string_view toml, std::span<const std::string> overrides) {
    given_ = read_toml(toml, recipe_.path_);
    for (const std::string& text : overrides) apply(text);
    for (const TomlSection& section : given_.sections) check_section(section);
    for (TomlKey& key : given_.keys) check_key(key);
    fill_entries();
    for (const KeyGroup& group : schema_.groups) check_group(group);
    derive();
    for (const RecipeCheck check : schema_.checks) check(recipe_);
    return std::move(recipe_);
  }

 private:
  std::string place(int line) const {
    return line == 0 ? "command line" : concat(recipe_.path_.string(), ":", line);
  }

  // One override, "name=text".
  void apply(const std::string& text) {
    const size_t equals = text.find('=');
    TRIREME_CHECK(equals != text.npos && equals > 0, "command line: '", text,
                  "' is no override, which reads key=value");
    const std::string name = text.substr(0, equals), value = text.substr(equals + 1);
    const KeySpec* key = schema_.find(name);
    const bool section =
        std::ranges::any_of(schema_.keys, [&](const KeySpec& k) { return is_below(k.name, name); });
    TRIREME_CHECK(key || section, "command line: there is no key ", name,
                  suggestion(schema_, name));
    const size_t replaced = std::erase_if(given_.keys, [&](const TomlKey& k) {
      return k.name == name || is_below(k.name, name) || is_below(name, k.name);
    });
    if (value.empty()) {
      TRIREME_CHECK(replaced > 0, "command line: '", text,
                    "' takes away nothing: ", recipe_.path_.string(), " does not give ", name);
      std::erase_if(given_.sections,
                    [&](const TomlSection& s) { return s.name == name || is_below(s.name, name); });
      return;
    }
    for (TomlKey& k : read_override(name, key, value)) given_.keys.push_back(std::move(k));
  }

  // Text as it is for keys that hold text, one item for a list of one, else TOML. What is no TOML
  // either stays a text, so that the message about its type shows it.
  std::vector<TomlKey> read_override(const std::string& name, const KeySpec* key,
                                     const std::string& text) const {
    const auto literal = [&] { return std::vector<TomlKey>{{name, text, 0}}; };
    const auto toml = [&] { return read_toml_value(name, text).value_or(literal()); };
    const char first = text[0];
    if (!key || first == '[' || first == '{' || first == '"' || first == '\'') {
      std::vector<TomlKey> keys = toml();
      const bool item = key && key->type >= KeyType::numbers && first != '[';
      if (item && keys.size() == 1 && keys[0].name == name)
        keys[0].value = Value::List{keys[0].value};
      return keys;
    }
    switch (key->type) {
      case KeyType::text:
      case KeyType::choice:
        return literal();
      case KeyType::texts:
      case KeyType::records:
        return {{name, Value::List{text}, 0}};
      case KeyType::numbers: {
        std::vector<TomlKey> keys = toml();
        for (TomlKey& k : keys) k.value = Value::List{k.value};
        return keys;
      }
      default:
        return toml();
    }
  }

  // The name of the family member that `name` is or lies below: "user" for "feature.user.kind".
  void note_family(std::string_view name) {
    const size_t dot = name.find('.');
    if (dot == name.npos) return;
    const std::string_view family = name.substr(0, dot);
    const std::string_view member = name.substr(dot + 1, name.find('.', dot + 1) - dot - 1);
    const std::string_view both = name.substr(0, dot + 1 + member.size());
    bool known = false;
    for (const KeySpec& key : schema_.keys) {
      if (key.name == both || is_below(key.name, both)) return;  // a section of its own
      known |= key.name.starts_with(concat(family, ".*."));
    }
    const std::pair<std::string, std::string> entry{family, member};
    auto& families = recipe_.families_;
    if (known && std::ranges::find(families, entry) == families.end()) families.push_back(entry);
  }

  void check_section(const TomlSection& section) {
    note_family(section.name);
    const bool known =
        std::ranges::any_of(schema_.keys,
                            [&](const KeySpec& key) { return is_below(key.name, section.name); }) ||
        std::ranges::any_of(recipe_.families_, [&](const auto& family) {
          return section.name == concat(family.first, ".", family.second) ||
                 is_below(section.name, concat(family.first, ".", family.second));
        });
    const bool empty = std::ranges::none_of(
        given_.keys, [&](const TomlKey& key) { return is_below(key.name, section.name); });
    if (known || !empty) return;  // an unknown section is named by its first key
    throw InputError(concat(place(section.line), ": there is no section [", section.name, "]",
                            suggestion_for_section(section.name)));
  }

  std::string suggestion_for_section(const std::string& name) const {
    std::set<std::string> sections;
    for (const KeySpec& key : schema_.keys) sections.emplace(section_and_leaf(key.name).first);
    sections.erase("");
    const std::vector<std::string> all(sections.begin(), sections.end());
    const auto meant = nearest(name, all);
    return meant ? concat("; did you mean [", *meant, "]?") : concat("; there is ", join_or(all));
  }

  void check_key(TomlKey& given) {
    note_family(given.name);
    const KeySpec* key = schema_.find(given.name);
    if (!key) unknown_key(given);
    if (const KeySpec* records = schema_.records_of(*key))
      throw InputError(concat(place(given.line), ": ", records->name, " wants ", wanted(*records),
                              "; write ", records->name, " = [{ … }]"));
    given.value = convert(schema_, *key, given.name, given.value, place(given.line));
  }

  [[noreturn]] void unknown_key(const TomlKey& given) const {
    for (const KeySpec& key : schema_.keys) {
      TRIREME_CHECK(!is_below(key.name, given.name), place(given.line), ": ", given.name,
                    " is a section of keys such as ", key.name, ", found ", shown(given.value));
      TRIREME_CHECK(!is_below(given.name, key.name), place(given.line), ": ", key.name, " wants ",
                    wanted(key), ", found a table with ", given.name);
    }
    throw InputError(concat(place(given.line), ": there is no key ", given.name,
                            suggestion(schema_, given.name)));
  }

  // Every key that this recipe can have, in the order of the schema; a family's keys once for each
  // of its members.
  void fill_entries() {
    for (size_t at = 0; at < schema_.keys.size();) {
      const KeySpec& key = schema_.keys[at];
      const size_t star = key.name.find('*');
      if (star == key.name.npos) {
        if (!schema_.records_of(key)) fill_entry(key, std::string(key.name), "");
        ++at;
        continue;
      }
      const std::string_view head = key.name.substr(0, star);
      size_t end = at;
      while (end < schema_.keys.size() && schema_.keys[end].name.starts_with(concat(head, "*")))
        ++end;
      for (const auto& [family, member] : recipe_.families_) {
        if (concat(family, ".") != head) continue;
        for (size_t i = at; i < end; ++i) {
          const KeySpec& spec = schema_.keys[i];
          fill_entry(spec, concat(head, member, spec.name.substr(star + 1)), member);
        }
      }
      at = end;
    }
  }

  const Value* effective(std::string_view name) const {
    const Recipe::Entry* entry = recipe_.find(name);
    return entry && entry->value ? &*entry->value : nullptr;
  }

  std::optional<Term> failing(std::string_view condition, std::string_view member) const {
    return first_failing(parse_condition(condition, member),
                         [this](std::string_view name) { return effective(name); });
  }

  void fill_entry(const KeySpec& key, const std::string& name, const std::string& member) {
    const auto at = std::ranges::find(given_.keys, name, &TomlKey::name);
    const TomlKey* given = at == given_.keys.end() ? nullptr : &*at;
    if (const auto term = failing(key.when, member)) {
      if (given && overridden(*given, *term))
        log_info(concat(place(given->line), ": ", name, " has no effect with ", term->key, " from ",
                        recipe_.where(term->key)));
      else if (given) no_effect(name, parse_condition(key.when, member), *term, place(given->line));
      return;
    }
    Recipe::Entry entry{name, &key, std::nullopt, Origin::default_value, 0};
    if (given) {
      entry.value = given->value;
      entry.line = given->line;
      entry.origin = given->line == 0 ? Origin::command_line : Origin::recipe;
      if (key.type == KeyType::choice) check_choice(key, *given, member);
      if (key.type == KeyType::records) check_fields(key, *given, member);
    } else if (key.initial == kRequired) {
      missing(key, name);
    } else if (key.initial == kDerived) {
      entry.origin = Origin::derived;
    } else if (key.initial != kOptional) {
      entry.value = initial_value(schema_, key);
    }
    recipe_.index_.emplace(name, recipe_.entries_.size());
    recipe_.entries_.push_back(std::move(entry));
  }

  // The file was right when it was written: the command line took away what a key of it counted on.
  bool overridden(const TomlKey& given, const Term& term) const {
    const Recipe::Entry* entry = recipe_.find(term.key);
    return given.line > 0 && entry && entry->origin == Origin::command_line;
  }

  [[noreturn]] void no_effect(const std::string& what, const std::vector<Term>& condition,
                              const Term& term, const std::string& where) const {
    const Value* value = effective(term.key);
    const std::string is =
        value ? concat(term.key, " = ", to_toml(*value), " (", recipe_.where(term.key), ")")
              : concat("there is no ", term.key);
    throw InputError(concat(where, ": ", what, " has no effect: it counts only with ",
                            describe(condition), ", and ", is, "\nremove it, or change ",
                            term.key));
  }

  void check_choice(const KeySpec& key, const TomlKey& given, const std::string& member) const {
    for (const Choice& choice : parse_choices(key.choices)) {
      if (choice.name != *given.value.get<std::string>()) continue;
      if (const auto term = failing(choice.when, member))
        no_effect(concat(given.name, " = ", to_toml(given.value)),
                  parse_condition(choice.when, member), *term, place(given.line));
    }
  }

  void check_fields(const KeySpec& key, const TomlKey& given, const std::string& member) const {
    for (const Value& record : *given.value.get<Value::List>())
      for (const auto& [field, value] : *record.get<Value::Table>()) {
        const std::string name = concat(given.name, ".", field);
        const std::string_view condition = schema_.find(concat(key.name, ".", field))->when;
        if (const auto term = failing(condition, member))
          no_effect(name, parse_condition(condition, member), *term, place(given.line));
      }
  }

  [[noreturn]] void missing(const KeySpec& key, const std::string& name) const {
    const auto [section, leaf] = section_and_leaf(name);
    const auto at = std::ranges::find(given_.sections, section, &TomlSection::name);
    const std::string where =
        at == given_.sections.end() ? recipe_.path_.string() : place(at->line);
    throw InputError(concat(where, ": ", name, " is missing; it wants ", wanted(key),
                            key.range.empty() ? "" : concat(", ", key.range), "\n", key.help));
  }

  bool is_given(const Recipe::Entry& entry) const {
    return entry.origin == Origin::recipe || entry.origin == Origin::command_line;
  }

  void check_group(const KeyGroup& group) const {
    if (failing(group.when, "")) return;
    std::vector<const Recipe::Entry*> given;
    std::vector<std::string> names;
    for (const std::string_view name : group.keys) {
      names.emplace_back(name);
      const Recipe::Entry* entry = recipe_.find(name);
      if (entry && is_given(*entry)) given.push_back(entry);
    }
    TRIREME_CHECK(!given.empty() || !group.required, recipe_.path_.string(), ": one of ",
                  join_or(names), " is missing");
    if (given.size() < 2) return;
    // The later one is to blame; what the command line says comes last.
    std::ranges::stable_sort(given, {}, [](const Recipe::Entry* entry) {
      return entry->origin == Origin::command_line ? INT32_MAX : entry->line;
    });
    const Recipe::Entry &first = *given[0], &last = *given[1];
    const bool mixed = first.origin != last.origin;
    throw InputError(concat(
        recipe_.where(last.name), ": ", last.name, " contradicts ", first.name, " (",
        recipe_.where(first.name), "): give one of ", join_or(names),
        mixed ? concat("\nadd ", first.name, "= to the command line to take it out of the recipe")
              : ""));
  }

  void derive() {
    for (Recipe::Entry& entry : recipe_.entries_) {
      const bool asked = entry.spec->zero_derives && entry.value && *entry.value == Value(0);
      if (entry.spec->initial != kDerived || (entry.value && !asked) || !entry.spec->derive)
        continue;
      const auto value = entry.spec->derive(recipe_);
      if (!value) continue;
      entry.origin = Origin::derived;
      entry.line = 0;
      entry.value = convert(schema_, *entry.spec, entry.name, *value, recipe_.where(entry.name));
    }
  }

  const Schema& schema_;
  Recipe recipe_;
  TomlFile given_;
};

Recipe parse_recipe(std::string_view toml, const std::filesystem::path& path,
                    std::span<const std::string> overrides, const Schema& schema) {
  return RecipeLoader(path, schema).load(toml, overrides);
}

Recipe load_recipe(const std::filesystem::path& path, std::span<const std::string> overrides) {
  return parse_recipe(read_file(path), path, overrides, recipe_schema());
}

}  // namespace trireme
