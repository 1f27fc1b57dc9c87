// What a recipe may hold: each key is declared once, as one row of a table, and everything that
// speaks about keys reads that row: parsing, the command line, explain, error messages, the frozen
// recipe, help and docs/recipe.md. A new key is one row in keys.cc.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/recipe/value.h"

namespace trireme {

class Recipe;

enum class KeyType {
  integer,
  count,    // an integer, or a text such as "20M", "1.5k": k, M, B, T are powers of 1000
  number,   // integers are taken too
  flag,     // true or false
  text,     // any text
  choice,   // one of `choices`
  numbers,  // a list of `length` numbers
  texts,    // a list of texts
  records,  // a list of inline tables; their fields are the keys NAME.field, and a bare text stands
            // for a record that has only the first field
};

// Conditions are texts of terms joined by " & ": `key=a|b` (its value is one of these), `key>0`,
// `key` (it has a value), `!key` (it has none). They look at keys above them in the table only.
struct KeySpec {
  std::string_view name;  // "section.key"; "feature.*.kind" is one key for each [feature.NAME]
  KeyType type;
  std::string_view help;     // one line, a sentence
  std::string_view initial;  // the default, as TOML; or kRequired, kOptional, kDerived

  std::string_view unit = "";
  std::string_view range = "";    // ">= 0, < 1": of the number, or of each number of a list
  std::string_view choices = "";  // "a | b", "a if task=pretrain | b if task=ctr"
  size_t length = 0;              // of a list; 0: any
  std::string_view when = "";     // the key has an effect under this condition only

  // With kDerived: what it is derived from, in words, and how, from keys that have values after
  // defaults are filled in. No function, or no answer: the value comes by Recipe::set_derived().
  std::string_view derived_from = "";
  std::optional<Value> (*derive)(const Recipe& recipe) = nullptr;
  bool zero_derives = false;  // a 0 in the recipe asks for the derived value too
};

inline constexpr std::string_view kRequired = "required";
inline constexpr std::string_view kOptional = "optional";  // has() tells; there is no default
inline constexpr std::string_view kDerived = "derived";

// Keys of which one recipe may give at most one, or, when required, exactly one.
struct KeyGroup {
  std::vector<std::string_view> keys;
  bool required;
  std::string_view when = "";
};

// Throws InputError, beginning with Recipe::where(), when values do not go together. Looks only at
// keys for which has() holds.
using RecipeCheck = void (*)(const Recipe& recipe);

// The rows outlive it. Order matters: recipes are explained and frozen in this order, keys of a
// section and of a family lie together, and record fields follow their list.
struct Schema {
  std::span<const KeySpec> keys;
  std::span<const KeyGroup> groups;
  std::span<const RecipeCheck> checks;

  // The row of a key of a recipe ("feature.user.kind" finds "feature.*.kind"). Null: none.
  const KeySpec* find(std::string_view name) const;
  // The fields of a list of records, and the other way round: the list that a key is a field of.
  std::vector<const KeySpec*> fields(const KeySpec& records) const;
  const KeySpec* records_of(const KeySpec& field) const;
};

// The schema of every recipe that Trireme takes (keys.cc).
const Schema& recipe_schema();

}  // namespace trireme
