// From what a recipe or the command line says to a value of the declared type.
#pragma once

#include <string>

#include "base/recipe/schema.h"
#include "base/recipe/value.h"

namespace trireme {

// The value as its key's accessor returns it: a count as an integer, a number always with a point,
// a record as a table. InputError, beginning with `where`, for a wrong type, a number out of range,
// an unknown choice or field, a missing field, a list of the wrong length. Conditions are not
// looked at.
Value convert(const Schema& schema, const KeySpec& key, const std::string& name, const Value& given,
              const std::string& where);

// The default of a key that has one.
Value initial_value(const Schema& schema, const KeySpec& key);

// What a value must be: "an integer", "one of a, b", "a list of 2 numbers".
std::string wanted(const KeySpec& key);

// A value in a message: its TOML, cut when it is long.
std::string shown(const Value& value);

}  // namespace trireme
