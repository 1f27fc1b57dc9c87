#include "base/recipe/recipe.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "base/recipe/test_schema.h"

namespace trireme {
namespace {

TEST(Recipe, ReadsEveryType) {
  const Recipe recipe = parse_test(R"(
task = "walk"
[run]
tokens = "1.5k"
rate = 1
loud = true
name = "é"
pair = [1, 2.5]
words = ["a", "b"]
stroke = "any"
[data]
source = ["x", { path = "y", weight = 3 }]
coder = { kind = "bpe", size = 9 }
)");
  EXPECT_EQ(recipe.text("task"), "walk");
  EXPECT_EQ(recipe.integer("run.tokens"), 1500);
  EXPECT_EQ(recipe.number("run.rate"), 1.0);
  EXPECT_TRUE(recipe.flag("run.loud"));
  EXPECT_EQ(recipe.integer("run.volume"), 3);
  EXPECT_EQ(recipe.text("run.name"), "é");
  EXPECT_EQ(recipe.numbers("run.pair"), (std::vector<double>{1, 2.5}));
  EXPECT_EQ(recipe.texts("run.words"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(recipe.text("run.stroke"), "any");
  const auto sources = recipe.records("data.source");
  ASSERT_EQ(sources.size(), 2u);
  EXPECT_EQ(sources[0].text("path"), "x");
  EXPECT_EQ(sources[0].number("weight"), 1.0);
  EXPECT_FALSE(sources[0].has("depth"));
  EXPECT_EQ(sources[1].text("path"), "y");
  EXPECT_EQ(sources[1].number("weight"), 3.0);
  EXPECT_FALSE(recipe.has("data.coder"));
  EXPECT_EQ(recipe.text("data.coder.kind"), "bpe");
  EXPECT_EQ(recipe.integer("data.coder.size"), 9);
}

TEST(Recipe, SectionsInlineTablesAndDottedKeysAreTheSame) {
  for (const char* toml : {"task = 'walk'\n[data.coder]\nkind = 'bpe'\nsize = 5",
                           "task = 'walk'\ndata.coder.kind = 'bpe'\ndata.coder.size = 5",
                           "task = 'walk'\n[data]\ncoder.kind = 'bpe'\ncoder.size = 5"})
    EXPECT_EQ(parse_test(toml).integer("data.coder.size"), 5) << toml;
  const auto sources = parse_test(
      "task = 'walk'\n[[data.source]]\npath = 'a'\n[[data.source]]\npath = 'b'\nweight = 2");
  EXPECT_EQ(sources.records("data.source")[1].number("weight"), 2);
}

TEST(Recipe, CountsReadTheirSuffix) {
  const auto count = [](const std::string& text) {
    return parse_test("task = 'walk'\nrun.tokens = '" + text + "'").integer("run.tokens");
  };
  EXPECT_EQ(count("7"), 7);
  EXPECT_EQ(count("20M"), 20'000'000);
  EXPECT_EQ(count("0.5k"), 500);
  EXPECT_EQ(count("1.234B"), 1'234'000'000);
  EXPECT_EQ(count("9000000T"), 9'000'000'000'000'000'000);
  for (const char* bad : {"", "M", "1.5", "1.2345k", "1e3", "-1k", "20 M", "20m", "1.k", ".5k",
                          "9999999T", "99999999999999999999", "1k1", "0x10"})
    EXPECT_THROW(count(bad), InputError) << bad;
}

TEST(Recipe, OverridesReplaceAndCompleteTheFile) {
  const std::string toml = "task = 'walk'\n[run]\nname = 'file'\nsteps = 5\n";
  EXPECT_EQ(parse_test(toml, {"run.name=x y"}).text("run.name"), "x y");
  EXPECT_EQ(parse_test(toml, {"run.name='q'"}).text("run.name"), "q");
  EXPECT_EQ(parse_test(toml, {"run.name=300"}).text("run.name"), "300");
  EXPECT_EQ(parse_test(toml, {"run.steps=6", "run.steps=7"}).integer("run.steps"), 7);
  EXPECT_EQ(parse_test(toml, {"run.steps=", "run.tokens=2k"}).integer("run.tokens"), 2000);
  EXPECT_EQ(parse_test(toml, {"run.loud=true"}).flag("run.loud"), true);
  EXPECT_EQ(parse_test(toml, {"run.words=one, two"}).texts("run.words").size(), 1u);
  EXPECT_EQ(parse_test(toml, {"run.words=['one', 'two']"}).texts("run.words").size(), 2u);
  EXPECT_EQ(parse_test(toml, {"run.pair=[1, 2]"}).numbers("run.pair")[1], 2.0);
  EXPECT_EQ(parse_test(toml, {"data.source=a*b"}).records("data.source")[0].text("path"), "a*b");
  const auto source =
      parse_test(toml, {"data.source=[{path='p', weight=2}]"}).records("data.source");
  EXPECT_EQ(source[0].number("weight"), 2);
}

TEST(Recipe, AnOverrideReplacesATableByATextAndTheOtherWayRound) {
  const std::string table = "task = 'walk'\ndata.coder = { kind = 'bpe', size = 5 }";
  EXPECT_EQ(parse_test(table, {"data.coder=file"}).text("data.coder"), "file");
  EXPECT_EQ(parse_test(table, {"data.coder.size=6"}).integer("data.coder.size"), 6);
  const std::string text = "task = 'walk'\ndata.coder = 'file'";
  EXPECT_EQ(parse_test(text, {"data.coder={kind='bpe', size=7}"}).integer("data.coder.size"), 7);
  const Recipe recipe = parse_test(text, {"data.coder.kind=bpe", "data.coder.size=8"});
  EXPECT_EQ(recipe.integer("data.coder.size"), 8);
  EXPECT_FALSE(recipe.has("data.coder"));
}

TEST(Recipe, FamiliesKeepTheOrderOfTheFile) {
  const Recipe recipe = parse_test(R"(
task = "walk"
[feature.zebra]
kind = "ids"
[feature.apple]
kind = "id"
[table]
dim = 8
[table.zebra]
dim = 16
[feature."middle one"]
kind = "ids"
pool = "sum"
)");
  EXPECT_EQ(recipe.families("feature"), (std::vector<std::string>{"zebra", "apple", "middle one"}));
  EXPECT_EQ(recipe.families("table"), (std::vector<std::string>{"zebra"}));
  EXPECT_EQ(recipe.integer("table.dim"), 8);
  EXPECT_EQ(recipe.integer("table.zebra.dim"), 16);
  EXPECT_EQ(recipe.text("feature.zebra.pool"), "mean");
  EXPECT_FALSE(recipe.has("feature.apple.pool"));
  EXPECT_EQ(recipe.text("feature.middle one.pool"), "sum");
  EXPECT_FALSE(recipe.has("table.apple.dim"));
}

TEST(Recipe, SaysWhereAValueCameFrom) {
  const Recipe recipe = parse_test("task = 'walk'\n[run]\n\nsteps = 5\n", {"run.name=x"});
  EXPECT_EQ(recipe.where("run.steps"), "r.toml:4");
  EXPECT_EQ(recipe.where("run.name"), "command line");
  EXPECT_EQ(recipe.where("run.rate"), "r.toml (run.rate by default)");
  EXPECT_EQ(recipe.where("run.threads"), "r.toml (run.threads from twice run.volume, or 1)");
}

TEST(Recipe, DerivesWhatIsNotGivenAndWhatAZeroAsksFor) {
  EXPECT_EQ(parse_test("task = 'walk'").integer("run.threads"), 1);
  EXPECT_EQ(parse_test("task = 'walk'\nrun.loud = true").integer("run.threads"), 6);
  EXPECT_EQ(parse_test("task = 'walk'\nrun.threads = 9").integer("run.threads"), 9);
  EXPECT_EQ(parse_test("task = 'walk'\nrun.threads = 0").integer("run.threads"), 1);
}

TEST(Recipe, TakesDerivedValuesLaterAndChecksThemAgain) {
  Recipe recipe = parse_test("task = 'walk'\nrun.tokens = 5");
  EXPECT_FALSE(recipe.has("run.steps"));
  recipe.set_derived("run.steps", 12);
  EXPECT_EQ(recipe.integer("run.steps"), 12);
  EXPECT_THROW(recipe.set_derived("run.steps", 13), InputError);  // the schema's own check
  EXPECT_THROW(recipe.set_derived("run.steps", 0), InputError);   // its range
  EXPECT_THROW(recipe.set_derived("run.name", "x"), InternalError);
  EXPECT_THROW(recipe.set_derived("run.nothing", 1), InternalError);
}

// Only what the user wrote in one place contradicts itself; an override may turn a feature off.
TEST(Recipe, AnOverrideMayLeaveKeysOfTheFileWithoutEffect) {
  const std::string toml = "task = 'walk'\n[run]\nloud = true\nvolume = 5";
  EXPECT_EQ(parse_test(toml).integer("run.volume"), 5);
  EXPECT_FALSE(parse_test(toml, {"run.loud=false"}).has("run.volume"));
  EXPECT_THROW(parse_test(toml, {"run.loud=false", "run.volume=6"}), InputError);
  EXPECT_THROW(parse_test("task = 'walk'", {"run.volume=6"}), InputError);
}

TEST(Recipe, AWrongQuestionIsOurBug) {
  const Recipe recipe = parse_test("task = 'walk'");
  EXPECT_THROW(recipe.has("run.undeclared"), InternalError);
  EXPECT_THROW(recipe.integer("run.undeclared"), InternalError);
  EXPECT_THROW(recipe.number("run.threads"), InternalError);
  EXPECT_THROW(recipe.integer("run.rate"), InternalError);
  EXPECT_THROW(recipe.text("run.words"), InternalError);
  EXPECT_THROW(recipe.integer("run.volume"), InternalError);  // without effect here
  EXPECT_THROW(recipe.integer("run.tokens"), InternalError);  // optional and not given
  EXPECT_THROW(recipe.records("data.source")[0].text("depth"), InternalError);
  EXPECT_THROW(recipe.records("data.source")[0].text("weight"), InternalError);
}

TEST(Recipe, IsCopied) {
  Recipe copy;
  {
    const Recipe recipe = parse_test("task = 'walk'\n[feature.a]\nkind = 'id'");
    copy = recipe;
  }
  EXPECT_EQ(copy.text("feature.a.kind"), "id");
}

TEST(Recipe, LoadsTheOnesThatWeShip) {
  const fs::path root = TRIREME_SOURCE_DIR;
  for (const auto& entry : fs::directory_iterator(root / "recipes")) {
    EXPECT_NO_THROW(load_recipe(entry.path())) << entry.path();
  }
  const Recipe nano = load_recipe(root / "recipes/code-nano.toml");
  EXPECT_EQ(nano.integer("model.head_dim"), 32);
  EXPECT_EQ(nano.integer("model.max_positions"), 256);
  EXPECT_EQ(nano.number("optimizer.lr"), 2e-3);
}

}  // namespace
}  // namespace trireme
