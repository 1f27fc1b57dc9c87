// The schema in words: help and docs/recipe.md.
#include <algorithm>

#include "base/error.h"
#include "base/recipe/convert.h"
#include "base/recipe/explain.h"
#include "base/recipe/terms.h"

namespace trireme {
namespace {

// "run" of run.name, "feature.NAME" of feature.*.kind, "data" of data.source.path.
std::string section_of(const KeySpec& key) {
  const size_t dot = key.name.find('.');
  if (dot == key.name.npos) return "";
  const std::string section(key.name.substr(0, dot));
  return key.name.substr(dot).starts_with(".*.") ? section + ".NAME" : section;
}

std::string shown_name(const KeySpec& key) {
  std::string name(key.name);
  if (const size_t star = name.find('*'); star != std::string::npos) name.replace(star, 1, "NAME");
  return name;
}

// "an integer, >= 1, samples".
std::string value_of(const KeySpec& key) {
  std::string text = wanted(key);
  if (!key.range.empty()) text += concat(", ", key.range);
  if (!key.unit.empty()) text += concat(", ", key.unit);
  return text;
}

std::string default_of(const KeySpec& key) {
  if (key.initial == kRequired) return "required";
  if (key.initial == kOptional) return "none";
  if (key.initial == kDerived) return concat("derived from ", key.derived_from);
  return std::string(key.initial);
}

// "task = pretrain", and for choices that have a condition of their own, which.
std::string condition_of(const KeySpec& key) {
  std::string text = describe(parse_condition(key.when, "NAME"));
  if (!text.empty()) text = concat("Only with ", text, ".");
  for (const Choice& choice : parse_choices(key.choices))
    if (!choice.when.empty())
      text += concat(text.empty() ? "" : " ", '"', choice.name, "\" only with ",
                     describe(parse_condition(choice.when, "NAME")), ".");
  return text;
}

constexpr std::string_view kIntroduction = R"(# The recipe

<!-- Written by `trireme help recipe --markdown`; a test keeps it current. -->

A recipe is a TOML file that says what is trained, on what, and how.
[recipes/code-nano.toml](../recipes/code-nano.toml) is a whole one.

- Every key may also be given behind the recipe on the command line, as `batch.size=32`, and then
  goes before the recipe's. Texts need no quotes there (`run.name=night`), a single item stands for a
  list of one (`data.source=python-stdlib`), other values are TOML (`'optimizer.betas=[0.9, 0.95]'`).
  Of two for the same key the later one counts. `run.steps=` with nothing behind it takes a key out of
  the recipe, for example to make room for `run.tokens=20M`.
- `trireme explain RECIPE` shows every value that a run will use and where it came from: a line of the
  recipe, the command line, a default, or derived from other values. The run directory's
  `recipe.toml` holds all of them, and loads again to the same values.
- An unknown key, a wrong type, a value out of range, two keys that contradict each other and a key
  without effect are errors that name file and line; nothing is ignored in silence. A line of the
  recipe that an override leaves without effect is said and not an error.
- Sizes of the batch are global: over all ranks.
)";

}  // namespace

std::string describe_key(const KeySpec& key) {
  std::string text = concat(shown_name(key), ": ", key.help, "\n");
  text += concat("  value    ", value_of(key), "\n");
  text += concat("  default  ", default_of(key), "\n");
  const std::string condition = condition_of(key);
  if (!condition.empty()) text += concat("  counts   ", condition, "\n");
  return text;
}

std::string describe_section(const Schema& schema, std::string_view section) {
  size_t width = 0;
  for (const KeySpec& key : schema.keys) width = std::max(width, key.name.size() + 3);
  std::string text;
  for (const KeySpec& key : schema.keys) {
    if (!section.empty() && !key.name.starts_with(concat(section, "."))) continue;
    std::string name = shown_name(key);
    name.resize(width, ' ');
    text += concat(name, " ", key.help, "\n");
  }
  return text;
}

std::string recipe_markdown(const Schema& schema) {
  std::string text(kIntroduction);
  std::string section = "none yet";
  for (const KeySpec& key : schema.keys) {
    if (section_of(key) != section) {
      section = section_of(key);
      text += section.empty() ? "\n## The whole\n" : concat("\n## `[", section, "]`\n");
      text += "\n| key | value | default | meaning |\n| --- | --- | --- | --- |\n";
    }
    const std::string condition = condition_of(key);
    const bool literal =
        key.initial != kRequired && key.initial != kOptional && key.initial != kDerived;
    text += concat("| `", shown_name(key), "` | ", value_of(key), " | ", literal ? "`" : "",
                   default_of(key), literal ? "`" : "", " | ", key.help,
                   condition.empty() ? "" : " ", condition, " |\n");
  }
  return text;
}

}  // namespace trireme
