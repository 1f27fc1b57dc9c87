// A recipe: what the user asked for, checked against the schema, with every default filled in.
//
//   const Recipe recipe = load_recipe("recipes/code-nano.toml", {"batch.size=32"});
//   recipe.integer("batch.size")
//
// Whatever is wrong with the file or the command line is one InputError of one to three lines with
// file and line. What is wrong with a question is our bug, an InternalError: an undeclared key, a
// type other than the declared one, a key that has no value (ask has() first).
// Any thread reads a const Recipe. Lookups cost a binary search: not for inner loops.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/recipe/schema.h"
#include "base/recipe/value.h"

namespace trireme {

enum class Origin { recipe, command_line, default_value, derived };

// One inline table of a list such as data.source, with the defaults of its fields filled in.
class Record {
 public:
  bool has(std::string_view field) const;
  const std::string& text(std::string_view field) const;
  double number(std::string_view field) const;

 private:
  friend class Recipe;
  const Value* find(std::string_view field) const;
  Value::Table fields_;
};

class Recipe {
 public:
  // True when the key has a value and an effect in this recipe: given, default or derived.
  bool has(std::string_view name) const;

  int64_t integer(std::string_view name) const;          // integer, count
  double number(std::string_view name) const;            // number
  bool flag(std::string_view name) const;                // flag
  const std::string& text(std::string_view name) const;  // text, choice
  std::vector<double> numbers(std::string_view name) const;
  std::vector<std::string> texts(std::string_view name) const;
  std::vector<Record> records(std::string_view name) const;

  // The names NAME of all sections [family.NAME], in the order of the file.
  std::vector<std::string> families(std::string_view family) const;

  // Where a value came from, as the head of a message about it: "recipes/x.toml:12", "command
  // line", or "recipes/x.toml (batch.micro by default)".
  std::string where(std::string_view name) const;
  const std::filesystem::path& path() const { return path_; }

  // Fills in what is known only when the run starts: run.dir, run.steps from run.epochs. The key
  // must be declared kDerived, the value of its type; a given value may be replaced. Runs the
  // schema's checks again: InputError when the value does not go together with others.
  void set_derived(std::string_view name, const Value& value);

  // Every key that has an effect in this recipe, in the order of the schema.
  struct Entry {
    std::string name;
    const KeySpec* spec;
    std::optional<Value> value;  // none: kOptional and not given, or derived later
    Origin origin;
    int line;  // of the recipe; 0: the value is not from the file
  };
  std::span<const Entry> entries() const { return entries_; }
  const Schema& schema() const { return *schema_; }

 private:
  friend class RecipeLoader;
  const Entry* find(std::string_view name) const;
  const Value& value(std::string_view name, std::initializer_list<KeyType> types) const;

  std::filesystem::path path_;
  const Schema* schema_ = nullptr;
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> index_;           // name -> place in entries_
  std::vector<std::pair<std::string, std::string>> families_;  // (family, name) in file order
};

// Reads a recipe and applies overrides "a.b=value" in their order. A value is TOML, except that
// texts need no quotes and a single item stands for a list of one. "a.b=" takes the key away that
// the file gave; "a=value" also replaces what the file gave for a.x, and the other way round.
Recipe load_recipe(const std::filesystem::path& path, std::span<const std::string> overrides = {});

// The same from memory and against any schema; `path` is for messages.
Recipe parse_recipe(std::string_view toml, const std::filesystem::path& path,
                    std::span<const std::string> overrides, const Schema& schema);

}  // namespace trireme
