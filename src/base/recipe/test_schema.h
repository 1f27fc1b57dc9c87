// A schema with every type and every kind of condition, so that tests do not change with the keys
// of the real one; and a message's text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/recipe/recipe.h"

namespace trireme {

inline constexpr KeySpec kTestKeys[] = {
    {.name = "task",
     .type = KeyType::choice,
     .help = "Task.",
     .initial = kRequired,
     .choices = "walk | swim"},
    {.name = "run.steps",
     .type = KeyType::integer,
     .help = "Steps.",
     .initial = kDerived,
     .unit = "steps",
     .range = ">= 1, < 1000",
     .derived_from = "run.tokens, when the run starts"},
    {.name = "run.tokens",
     .type = KeyType::count,
     .help = "Tokens.",
     .initial = kOptional,
     .unit = "tokens",
     .range = "> 0"},
    {.name = "run.rate",
     .type = KeyType::number,
     .help = "Rate.",
     .initial = "0.5",
     .range = ">= 0, <= 1"},
    {.name = "run.loud", .type = KeyType::flag, .help = "Loud.", .initial = "false"},
    {.name = "run.volume",
     .type = KeyType::integer,
     .help = "Volume.",
     .initial = "3",
     .when = "run.loud=true"},
    {.name = "run.name", .type = KeyType::text, .help = "Name.", .initial = "\"n\""},
    {.name = "run.stroke",
     .type = KeyType::choice,
     .help = "Stroke.",
     .initial = kOptional,
     .choices = "crawl if task=swim | stride if task=walk | any"},
    {.name = "run.pair",
     .type = KeyType::numbers,
     .help = "Two numbers.",
     .initial = "[0.25, 1]",
     .range = "< 5",
     .length = 2},
    {.name = "run.words", .type = KeyType::texts, .help = "Words.", .initial = "[]"},
    {.name = "run.threads",
     .type = KeyType::integer,
     .help = "Threads.",
     .initial = kDerived,
     .range = ">= 0",
     .derived_from = "twice run.volume, or 1",
     .derive = [](const Recipe& r) -> std::optional<Value> {
       return r.has("run.volume") ? 2 * r.integer("run.volume") : 1;
     },
     .zero_derives = true},
    {.name = "data.source", .type = KeyType::records, .help = "Sources.", .initial = "[\"here\"]"},
    {.name = "data.source.path", .type = KeyType::text, .help = "Path.", .initial = kRequired},
    {.name = "data.source.weight",
     .type = KeyType::number,
     .help = "Weight.",
     .initial = "1",
     .range = "> 0"},
    {.name = "data.source.depth",
     .type = KeyType::integer,
     .help = "Depth.",
     .initial = kOptional,
     .when = "task=swim"},
    {.name = "data.coder", .type = KeyType::text, .help = "File.", .initial = kOptional},
    {.name = "data.coder.kind",
     .type = KeyType::choice,
     .help = "Kind.",
     .initial = kOptional,
     .choices = "bpe"},
    {.name = "data.coder.size",
     .type = KeyType::integer,
     .help = "Size.",
     .initial = kRequired,
     .when = "data.coder.kind"},
    {.name = "feature.*.kind",
     .type = KeyType::choice,
     .help = "Kind.",
     .initial = kRequired,
     .choices = "id | ids"},
    {.name = "feature.*.pool",
     .type = KeyType::text,
     .help = "Pool.",
     .initial = "\"mean\"",
     .when = "feature.*.kind=ids"},
    {.name = "table.dim", .type = KeyType::integer, .help = "Dim.", .initial = "4"},
    {.name = "table.*.dim", .type = KeyType::integer, .help = "Dim.", .initial = kOptional},
    {.name = "after.count",
     .type = KeyType::integer,
     .help = "Only with a positive rate.",
     .initial = "7",
     .when = "run.rate>0 & !data.coder"},
};

inline const KeyGroup kTestGroups[] = {{{"run.steps", "run.tokens"}, false},
                                       {{"data.coder", "data.coder.kind"}, false}};

inline void check_steps(const Recipe& recipe) {
  TRIREME_CHECK(!recipe.has("run.steps") || recipe.integer("run.steps") != 13,
                recipe.where("run.steps"), ": thirteen");
}

inline constexpr RecipeCheck kTestChecks[] = {check_steps};

inline const Schema kTestSchema{kTestKeys, kTestGroups, kTestChecks};

inline Recipe parse_test(std::string_view toml, const std::vector<std::string>& overrides = {}) {
  return parse_recipe(toml, "r.toml", overrides, kTestSchema);
}

// The message of the InputError, or what happened instead.
inline std::string message_of(std::string_view toml,
                              const std::vector<std::string>& overrides = {}) {
  try {
    parse_test(toml, overrides);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace trireme
