#include "base/recipe/explain.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "base/recipe/convert.h"
#include "base/recipe/terms.h"
#include "base/recipe/test_schema.h"

namespace trireme {
namespace {

constexpr const char* kEverything = R"(
task = "swim"
[run]
tokens = "3k"
rate = 1e-300
loud = true
volume = 11
name = "a \"quoted\" name\nwith a line # and no comment"
stroke = "crawl"
pair = [-0.1, 0.30000000000000004]
words = ["", "é", "a, b"]
[data]
source = ["plain", { path = "p", weight = 0.1, depth = 3 }, { path = "q" }]
coder = { kind = "bpe", size = 12 }
[feature."b c"]
kind = "ids"
[feature.a]
kind = "id"
[table.x]
dim = 2
)";

// Names and values, without origins.
std::vector<std::pair<std::string, std::optional<Value>>> values_of(const Recipe& recipe) {
  std::vector<std::pair<std::string, std::optional<Value>>> values;
  for (const Recipe::Entry& entry : recipe.entries()) values.emplace_back(entry.name, entry.value);
  return values;
}

TEST(Frozen, LoadsAgainToTheSameValues) {
  for (const std::vector<std::string>& overrides :
       {std::vector<std::string>{},
        {"run.name=x", "run.loud=", "run.volume="},
        {"data.coder=file.json"},
        {"task=walk", "run.stroke=stride", "data.source=['z']"},
        {"run.threads=0"}}) {
    const Recipe recipe = parse_test(kEverything, overrides);
    const std::vector<std::string> comments{"version 1\nand a second line", ""};
    const std::string frozen = frozen_recipe(recipe, comments);
    const Recipe again = parse_test(frozen);
    EXPECT_EQ(values_of(again), values_of(recipe)) << frozen;
    EXPECT_EQ(again.families("feature"), recipe.families("feature"));
    // Every value that has an effect is spelt out: none comes from a default the second time.
    for (const Recipe::Entry& entry : again.entries())
      EXPECT_TRUE(!entry.value || entry.origin == Origin::recipe) << entry.name;
    EXPECT_EQ(values_of(parse_test(frozen_recipe(again, {}))), values_of(recipe));
  }
}

TEST(Frozen, ADerivedValueBesideTheKeyItCameFromIsAComment) {
  Recipe recipe = parse_test("task = 'walk'\nrun.tokens = 5");
  recipe.set_derived("run.steps", 12);
  const std::string frozen = frozen_recipe(recipe, {});
  EXPECT_NE(frozen.find("\n# steps = 12 "), std::string::npos) << frozen;
  EXPECT_EQ(parse_test(frozen).integer("run.tokens"), 5);
  recipe = parse_test("task = 'walk'");
  recipe.set_derived("run.steps", 12);
  EXPECT_EQ(parse_test(frozen_recipe(recipe, {})).integer("run.steps"), 12);
}

TEST(Frozen, TheRecipesThatWeShipComeBack) {
  for (const char* name : {"code-nano.toml", "clicks-lr.toml"}) {
    const Recipe recipe = load_recipe(fs::path(TRIREME_SOURCE_DIR) / "recipes" / name);
    const std::string frozen = frozen_recipe(recipe, {});
    EXPECT_EQ(values_of(parse_recipe(frozen, "frozen.toml", {}, recipe_schema())),
              values_of(recipe));
  }
}

TEST(Explain, ShowsValueUnitAndOrigin) {
  const std::string table =
      explain_table(parse_test("task = 'walk'\n[run]\ntokens = '2k'", {"run.loud=true"}));
  const auto has_line = [&](const std::string& line) {
    EXPECT_NE(("\n" + table).find("\n" + line + "\n"), std::string::npos) << line << "\n" << table;
  };
  has_line("task         \"walk\"                       r.toml:1");
  has_line("run.tokens   2000 tokens                  r.toml:3");
  has_line("run.loud     true                         command line");
  has_line("run.volume   3                            default");
  has_line("run.threads  6                            derived from twice run.volume, or 1");
  has_line(
      "run.steps    (known when the run starts)  derived from run.tokens, when the run starts");
  EXPECT_EQ(table.find("run.stroke"), std::string::npos);
}

TEST(Explain, JsonHoldsTheSame) {
  const auto json = nlohmann::json::parse(explain_json(parse_test(kEverything, {"run.name=x"})));
  EXPECT_EQ(json["recipe"], "r.toml");
  std::map<std::string, nlohmann::json> by_key;
  for (const auto& value : json["values"]) by_key[value["key"]] = value;
  EXPECT_EQ(by_key["run.tokens"]["value"], 3000);
  EXPECT_EQ(by_key["run.tokens"]["unit"], "tokens");
  EXPECT_EQ(by_key["run.tokens"]["origin"], "recipe");
  EXPECT_EQ(by_key["run.tokens"]["line"], 4);
  EXPECT_EQ(by_key["run.name"]["origin"], "command line");
  EXPECT_TRUE(by_key["run.name"]["line"].is_null());
  EXPECT_TRUE(by_key["run.steps"]["value"].is_null());
  EXPECT_EQ(by_key["run.rate"]["value"], 1e-300);
  EXPECT_EQ(by_key["data.source"]["value"][0], "plain");
  EXPECT_EQ(by_key["data.source"]["value"][1]["depth"], 3);
  EXPECT_EQ(by_key["feature.b c.pool"]["value"], "mean");
}

// What every function that reads the table takes for granted.
void expect_sound(const Schema& schema) {
  std::set<std::string> names, sections;
  std::string last;
  for (const KeySpec& key : schema.keys) {
    const std::string name(key.name);
    EXPECT_TRUE(names.insert(name).second) << name << " is declared twice";
    EXPECT_TRUE(key.help.ends_with('.') && key.help.find('\n') == key.help.npos) << name;
    EXPECT_EQ(key.help.find('|'), key.help.npos) << name << ": breaks the table of the page";
    const std::string section = name.substr(0, name.find('.'));
    if (section != last) {
      EXPECT_TRUE(sections.insert(section).second) << section << " is split";
    }
    last = section;
    EXPECT_EQ(key.initial == kDerived, !key.derived_from.empty()) << name;
    EXPECT_EQ(key.type == KeyType::choice, !key.choices.empty()) << name;
    if (!key.range.empty()) {
      EXPECT_NO_THROW(broken_bound(key.range, 1)) << name;
    }
    if (key.initial != kRequired && key.initial != kOptional && key.initial != kDerived) {
      EXPECT_NO_THROW(initial_value(schema, key)) << name;
    }
    std::vector<Term> terms = parse_condition(key.when, "*");
    for (const Choice& choice : parse_choices(key.choices))
      for (const Term& term : parse_condition(choice.when, "*")) terms.push_back(term);
    for (const Term& term : terms)
      EXPECT_TRUE(names.contains(term.key) && term.key != name)
          << name << " looks at " << term.key << ", which is not above it";
    if (key.type == KeyType::records) {
      EXPECT_FALSE(schema.fields(key).empty()) << name;
    }
  }
  for (const KeyGroup& group : schema.groups)
    for (const std::string_view key : group.keys) EXPECT_TRUE(schema.find(key)) << key;
}

TEST(Schema, IsSound) {
  expect_sound(recipe_schema());
  expect_sound(kTestSchema);
}

TEST(Schema, KeysOfAnInlineTableLieTogether) {
  for (const Schema* schema : {&recipe_schema(), &kTestSchema}) {
    std::set<std::string> closed;
    std::string open;
    for (const KeySpec& key : schema->keys) {
      const std::string parent(key.name.substr(0, key.name.rfind('.')));
      if (parent != open && parent.find('.') != std::string::npos) {
        EXPECT_TRUE(closed.insert(parent).second) << parent << " is split";
      }
      open = parent;
    }
  }
}

TEST(Describe, TellsEverythingAboutAKey) {
  EXPECT_EQ(describe_key(*kTestSchema.find("run.volume")),
            "run.volume: Volume.\n  value    an integer\n  default  3\n"
            "  counts   Only with run.loud = true.\n");
  const std::string stroke = describe_key(*kTestSchema.find("run.stroke"));
  EXPECT_NE(stroke.find("\"crawl\" only with task = swim."), std::string::npos) << stroke;
  EXPECT_EQ(describe_section(kTestSchema, "table"),
            "table.dim             Dim.\ntable.NAME.dim        Dim.\n");
  EXPECT_EQ(describe_section(kTestSchema, "nothing"), "");
}

}  // namespace
}  // namespace trireme
