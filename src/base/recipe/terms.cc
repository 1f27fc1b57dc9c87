#include "base/recipe/terms.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace trireme {
namespace {

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

Term parse_term(std::string_view text, std::string_view family_name) {
  Term term{Term::Kind::present, {}, {}};
  if (const size_t at = text.find('='); at != text.npos) {
    term = {Term::Kind::equals, std::string(text.substr(0, at)), split(text.substr(at + 1), "|")};
  } else if (text.ends_with(">0")) {
    term = {Term::Kind::above_zero, std::string(text.substr(0, text.size() - 2)), {}};
  } else if (text.starts_with('!')) {
    term = {Term::Kind::absent, std::string(text.substr(1)), {}};
  } else {
    term.key = text;
  }
  TRIREME_ASSERT(!term.key.empty(), "term '", text, "'");
  if (const size_t star = term.key.find('*'); star != std::string::npos)
    term.key.replace(star, 1, family_name);
  return term;
}

// Of a flag "true", of a choice its bare name, of others their TOML.
std::string plain(const Value& value) {
  const auto* text = value.get<std::string>();
  return text ? *text : to_toml(value);
}

long double as_number(const Value& value) {
  if (const auto* integer = value.get<int64_t>()) return static_cast<long double>(*integer);
  const auto* number = value.get<double>();
  TRIREME_ASSERT(number, "a range of ", type_name(value));
  return *number;
}

bool within(long double number, std::string_view comparison, long double bound) {
  if (comparison == ">=") return number >= bound;
  if (comparison == ">") return number > bound;
  if (comparison == "<=") return number <= bound;
  if (comparison == "<") return number < bound;
  TRIREME_ASSERT(comparison == "=", "comparison '", comparison, "'");
  return number == bound;
}

}  // namespace

std::vector<std::string> split(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  if (trimmed(text).empty()) return parts;
  for (size_t at; (at = text.find(separator)) != text.npos;) {
    parts.emplace_back(trimmed(text.substr(0, at)));
    text.remove_prefix(at + separator.size());
  }
  parts.emplace_back(trimmed(text));
  return parts;
}

std::string join_or(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

std::vector<Term> parse_condition(std::string_view condition, std::string_view family_name) {
  std::vector<Term> terms;
  for (const std::string& text : split(condition, " & "))
    terms.push_back(parse_term(text, family_name));
  return terms;
}

std::optional<Term> first_failing(const std::vector<Term>& condition, const Lookup& lookup) {
  for (const Term& term : condition) {
    const Value* value = lookup(term.key);
    bool holds = value != nullptr;
    if (term.kind == Term::Kind::absent) holds = !value;
    else if (value && term.kind == Term::Kind::equals)
      holds = std::ranges::find(term.values, plain(*value)) != term.values.end();
    else if (value && term.kind == Term::Kind::above_zero) holds = as_number(*value) > 0;
    if (!holds) return term;
  }
  return std::nullopt;
}

std::string describe(const Term& term) {
  switch (term.kind) {
    case Term::Kind::equals:
      return term.key + " = " + join_or(term.values);
    case Term::Kind::above_zero:
      return term.key + " > 0";
    case Term::Kind::absent:
      return "no " + term.key;
    case Term::Kind::present:
      break;
  }
  return term.key;
}

std::string describe(const std::vector<Term>& condition) {
  std::string text;
  for (const Term& term : condition) text += (text.empty() ? "" : " and ") + describe(term);
  return text;
}

std::optional<std::string> broken_bound(std::string_view range, const Value& number) {
  for (const std::string& bound : split(range, ",")) {
    const size_t space = bound.find(' ');
    TRIREME_ASSERT(space != std::string::npos, "range '", range, "'");
    const long double limit = std::stold(bound.substr(space + 1));
    if (!within(as_number(number), std::string_view(bound).substr(0, space), limit)) return bound;
  }
  return std::nullopt;
}

std::vector<Choice> parse_choices(std::string_view choices) {
  std::vector<Choice> parsed;
  for (const std::string& text : split(choices, " | ")) {
    const size_t at = text.find(" if ");
    parsed.push_back({text.substr(0, at), at == text.npos ? "" : text.substr(at + 4)});
  }
  return parsed;
}

}  // namespace trireme
