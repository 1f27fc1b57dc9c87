// The small languages inside the schema's table: conditions, ranges and choices (see KeySpec).
// Malformed text is a bug of the table, an InternalError.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/recipe/value.h"

namespace trireme {

struct Term {
  enum class Kind { equals, above_zero, present, absent };
  Kind kind;
  std::string key;
  std::vector<std::string> values;  // equals: any of these
};

// Of "task=pretrain & eval.samples>0". In keys, "*" becomes `family_name`.
std::vector<Term> parse_condition(std::string_view condition, std::string_view family_name = "");

// The effective value of a key, null when it has none.
using Lookup = std::function<const Value*(std::string_view key)>;

// The first term that does not hold.
std::optional<Term> first_failing(const std::vector<Term>& condition, const Lookup& lookup);

// "task = pretrain or ctr", "eval.samples > 0", "data.tokenizer.train", "no data.tokenizer".
std::string describe(const Term& term);
// Of all terms, joined by "and"; empty for no terms.
std::string describe(const std::vector<Term>& condition);

// The first bound of ">= 0, < 1" that the number breaks, such as ">= 0".
std::optional<std::string> broken_bound(std::string_view range, const Value& number);

struct Choice {
  std::string name;
  std::string when;  // a condition
};
std::vector<Choice> parse_choices(std::string_view choices);

// The parts between separators, without spaces around them; none for an empty text.
std::vector<std::string> split(std::string_view text, std::string_view separator);
// "a", "a or b", "a, b or c".
std::string join_or(const std::vector<std::string>& words);

}  // namespace trireme
