// What a recipe comes to, and what its keys mean, in words. Every function is pure and reads only
// the schema and the recipe.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/recipe/recipe.h"
#include "base/recipe/schema.h"

namespace trireme {

// One line a value: key, value, unit, origin.
std::string explain_table(const Recipe& recipe);

// {"recipe": path, "values": [{"key", "value", "unit", "origin", "line"}, …]}: origin is "recipe",
// "command line", "default" or "derived"; line is null unless it is "recipe"; value is null where
// it is derived when the run starts.
std::string explain_json(const Recipe& recipe);

// The recipe with every effective value, which loads again to the same values. `comments` become
// the comment lines at its head. A derived value that contradicts a given key (run.steps beside
// run.epochs) is a comment.
std::string frozen_recipe(const Recipe& recipe, std::span<const std::string> comments);

// All there is to say about one key; the keys of one section ("batch"), or of all ("").
std::string describe_key(const KeySpec& key);
std::string describe_section(const Schema& schema, std::string_view section);
// docs/recipe.md.
std::string recipe_markdown(const Schema& schema);

}  // namespace trireme
