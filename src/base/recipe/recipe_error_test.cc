// Everything that can be wrong with a recipe, and the message that says so.
#include <gtest/gtest.h>

#include "base/files.h"
#include "base/random.h"
#include "base/recipe/test_schema.h"

namespace trireme {
namespace {

struct Wrong {
  const char* toml;
  const char* message;
};

TEST(RecipeError, NamesLineAndCause) {
  const Wrong cases[] = {
      {"", "r.toml: task is missing; it wants \"walk\" or \"swim\"\nTask."},
      {"task = 'wakl'",
       "r.toml:1: task wants \"walk\" or \"swim\", found \"wakl\"; did you mean \"walk\"?"},
      {"task = 'walk'\n[run]\nspteps = 1",
       "r.toml:3: there is no key run.spteps; did you mean run.steps?"},
      {"task = 'walk'\n[rnu]\nsteps = 1",
       "r.toml:3: there is no key rnu.steps; did you mean run.steps?"},
      {"task = 'walk'\n[rnu]", "r.toml:2: there is no section [rnu]; did you mean [run]?"},
      {"task = 'walk'\n[table]\nsteps = 1",
       "r.toml:3: there is no key table.steps; did you mean run.steps?"},
      {"task = 'walk'\n[table]\nqqqqqqqq = 1",
       "r.toml:3: there is no key table.qqqqqqqq\n[table] has dim"},
      {"task = 'walk'\nqqqqqqqq = 1",
       "r.toml:2: there is no key qqqqqqqq\nthe keys are listed by: trireme help recipe"},
      {"task = 'walk'\n[run]\nsteps = 1.0",
       "r.toml:3: run.steps wants an integer, found 1.0, a number"},
      {"task = 'walk'\n[run]\nsteps = 'six'",
       "r.toml:3: run.steps wants an integer, found \"six\", a text"},
      {"task = 'walk'\n[run]\nrate = true",
       "r.toml:3: run.rate wants a number, found true, a flag"},
      {"task = 'walk'\n[run]\nloud = 1",
       "r.toml:3: run.loud wants true or false, found 1, an integer"},
      {"task = 'walk'\n[run]\nname = ['x']",
       "r.toml:3: run.name wants a text, found [\"x\"], a list"},
      {"task = 'walk'\n[run]\nwords = 'x'",
       "r.toml:3: run.words wants a list of texts, found \"x\", a text"},
      {"task = 'walk'\n[run]\nwords = [\n'x', 3]",
       "r.toml:3: run.words wants a list of texts, found 3, an integer"},
      {"task = 'walk'\n[run]\npair = [1]",
       "r.toml:3: run.pair wants a list of 2 numbers, found 1: [1]"},
      {"task = 'walk'\n[run]\nsteps = 0",
       "r.toml:3: run.steps = 0 steps is out of range: it must be >= 1"},
      {"task = 'walk'\n[run]\nsteps = 1000",
       "r.toml:3: run.steps = 1000 steps is out of range: it must be < 1000"},
      {"task = 'walk'\n[run]\npair = [1, 5]",
       "r.toml:3: run.pair = 5.0 is out of range: it must be < 5"},
      {"task = 'walk'\n[run]\nrate = nan",
       "r.toml:3: run.rate = nan is out of range: it must be finite"},
      {"task = 'walk'\n[run]\npair = [1, -inf]",
       "r.toml:3: run.pair = -inf is out of range: it must be finite"},
      {"task = 'walk'\n[run]\nsteps = 1\ntokens = 5",
       "r.toml:4: run.tokens contradicts run.steps (r.toml:3): give one of run.steps or "
       "run.tokens"},
      {"task = 'walk'\n[run]\ntokens = 5\nsteps = 1",
       "r.toml:4: run.steps contradicts run.tokens (r.toml:3): give one of run.steps or "
       "run.tokens"},
      {"task = 'walk'\n[run]\nvolume = 5",
       "r.toml:3: run.volume has no effect: it counts only with run.loud = true, and run.loud = "
       "false (r.toml (run.loud by default))\nremove it, or change run.loud"},
      {"task = 'walk'\n[run]\nstroke = 'crawl'",
       "r.toml:3: run.stroke = \"crawl\" has no effect: it counts only with task = swim, and task "
       "= \"walk\" (r.toml:1)\nremove it, or change task"},
      {"task = 'walk'\n[data]\nsource = [{ path = 'a', depth = 1 }]",
       "r.toml:3: data.source.depth has no effect: it counts only with task = swim, and task = "
       "\"walk\" (r.toml:1)\nremove it, or change task"},
      {"task = 'walk'\n[data]\nsource = [{ weight = 1 }]",
       "r.toml:3: data.source lacks the field path in { weight = 1 }"},
      {"task = 'walk'\n[data]\nsource = [{ path = 'a', wieght = 1 }]",
       "r.toml:3: data.source has no field wieght; it has path, weight or depth"},
      {"task = 'walk'\n[data]\nsource = [{ path = 'a', weight = 0 }]",
       "r.toml:3: data.source.weight = 0.0 is out of range: it must be > 0"},
      {"task = 'walk'\n[data]\nsource = [7]",
       "r.toml:3: data.source wants a list of texts or tables, found 7, an integer"},
      {"task = 'walk'\n[data]\nsource = { path = 'a' }",
       "r.toml:3: data.source wants a list of texts or tables; write data.source = [{ … }]"},
      {"task = 'walk'\n[data.coder]\nkind = 'bpe'",
       "r.toml:2: data.coder.size is missing; it wants an integer\nSize."},
      {"task = 'walk'\n[data.coder]\nsize = 3",
       "r.toml:3: data.coder.size has no effect: it counts only with data.coder.kind, and there is "
       "no data.coder.kind\nremove it, or change data.coder.kind"},
      {"task = 'walk'\n[run.steps]\nx = 1",
       "r.toml:3: run.steps wants an integer, found a table with run.steps.x"},
      {"task = 'walk'\nrun = 3", "r.toml:2: run is a section of keys such as run.steps, found 3"},
      {"task = 'walk'\n[feature.user]",
       "r.toml:2: feature.user.kind is missing; it wants \"id\" or \"ids\"\nKind."},
      {"task = 'walk'\n[feature.user]\nkind = 'id'\npool = 'sum'",
       "r.toml:4: feature.user.pool has no effect: it counts only with feature.user.kind = ids, "
       "and "
       "feature.user.kind = \"id\" (r.toml:3)\nremove it, or change feature.user.kind"},
      {"task = 'walk'\n[run]\nsteps = 13", "r.toml:3: thirteen"},
      {"task = 'walk'\nwhen = 2020-01-01",
       "r.toml:2: when is a date or a time, which no key of a recipe takes"},
      {"task = 'walk'\n\"a.b\" = 1",
       "r.toml:2: the name \"a.b\" cannot be used: it is empty or holds a dot or '='"},
      {"task = 'walk'\n[run]\nsteps = 99999999999999999999",
       "r.toml:3: bad TOML: Error while parsing decimal integer: '99999999999999999999' is not "
       "representable in 64 bits"},
  };
  for (const Wrong& wrong : cases) EXPECT_EQ(message_of(wrong.toml), wrong.message) << wrong.toml;
}

TEST(RecipeError, BadTomlAndDuplicatesNameTheLine) {
  const Wrong cases[] = {
      {"task = 'walk'\ntask = 'swim'", "r.toml:2: given twice: "},
      {"task = 'walk'\n[run]\nsteps = 1\n[run]\nrate = 1", "r.toml:4: given twice: "},
      {"task = 'walk'\n[run\nsteps = 1", "r.toml:2: bad TOML: "},
      {"task = 'walk'\nrun.name = \"open", "r.toml:2: bad TOML: "},
      {"task = walk", "r.toml:1: bad TOML: "},
      {"task = 'walk'\nrun.name = '\xff'", "r.toml:2: bad TOML: "},
      {"\x89PNG\r\n\x1a\n", "r.toml:1: bad TOML: "},
  };
  for (const Wrong& wrong : cases)
    EXPECT_EQ(message_of(wrong.toml).substr(0, std::string(wrong.message).size()), wrong.message)
        << message_of(wrong.toml);
}

TEST(RecipeError, TheCommandLineHasTheSameSchema) {
  const std::string toml = "task = 'walk'\n[run]\nsteps = 5";
  const auto message = [&](const std::string& override) { return message_of(toml, {override}); };
  EXPECT_EQ(message("run.spteps=1"),
            "command line: there is no key run.spteps; did you mean run.steps?");
  EXPECT_EQ(message("run.steps=many"),
            "command line: run.steps wants an integer, found \"many\", a text");
  EXPECT_EQ(message("run.steps=0"),
            "command line: run.steps = 0 steps is out of range: it must be >= 1");
  EXPECT_EQ(message("run.steps=1\nloud=true").substr(0, 13), "command line:");
  EXPECT_EQ(message("run.tokens=5"),
            "command line: run.tokens contradicts run.steps (r.toml:3): give one of run.steps or "
            "run.tokens\nadd run.steps= to the command line to take it out of the recipe");
  EXPECT_EQ(message("run.rate="),
            "command line: 'run.rate=' takes away nothing: r.toml does not give run.rate");
  EXPECT_EQ(message("steps"), "command line: 'steps' is no override, which reads key=value");
  EXPECT_EQ(message("=5"), "command line: '=5' is no override, which reads key=value");
  EXPECT_EQ(message("data.source.weight=2"),
            "command line: data.source wants a list of texts or tables; write data.source = [{ … "
            "}]");
}

TEST(RecipeError, ALongValueIsCutBetweenLetters) {
  std::string name;
  for (int i = 0; i < 100; ++i) name += "é";
  const std::string message = message_of("task = 'walk'\nrun.steps = '" + name + "'");
  EXPECT_LT(message.size(), 200u);
  EXPECT_NE(message.find("é…"), std::string::npos) << message;
}

// toml++ recurses once a part of a dotted name; 100,000 parts overflowed its stack.
TEST(RecipeError, AVeryDeepOrLargeFileIsRefused) {
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "a.";
  EXPECT_EQ(message_of("task = 'walk'\n" + deep + "b = 1"),
            "r.toml:2: a name of more than 64 parts");
  EXPECT_EQ(message_of("[" + deep + "b]"), "r.toml:1: a name of more than 64 parts");
  EXPECT_EQ(message_of("x = { " + deep + "b = 1 }"), "r.toml:1: a name of more than 64 parts");
  EXPECT_EQ(message_of("task = 'walk'", {"run.steps={" + deep + "b=1}"}),
            "command line:1: a name of more than 64 parts");
  EXPECT_NE(message_of("x = " + std::string(100'000, '[')).find("bad TOML"), std::string::npos);
  EXPECT_NE(message_of(std::string((1 << 20) + 1, '#')).find("is no recipe"), std::string::npos);
}

TEST(RecipeError, ManyDotsInTextsAndCommentsAreNoDepth) {
  const std::string dots(200, '.');
  EXPECT_EQ(message_of("task = 'walk' # " + dots + "\nrun.name = \"" + dots + "\""), "no error");
  EXPECT_EQ(message_of("task = 'walk'\nrun.name = '''\n" + dots + "\n" + dots + "''' #" + dots),
            "no error");
}

TEST(RecipeError, AMissingFileAndADirectoryAreTheUsersMatter) {
  EXPECT_THROW(load_recipe("/nowhere/r.toml"), InputError);
  EXPECT_THROW(load_recipe("/"), InputError);
}

// Bytes of a good recipe replaced, dropped and doubled: each text loads, or is refused by a message
// that names the file. Seed 11; 4,000 variants of up to 8 edits take about a second.
TEST(RecipeError, NoTextCrashesTheReader) {
  const std::string good = read_file(fs::path(TRIREME_SOURCE_DIR) / "recipes/code-nano.toml");
  const std::string letters = "\"'[]{}=.,#\n\\ x1-\xff";
  const RandomStream random(11, "mutations");
  uint64_t draw = 0;
  const auto below = [&](size_t bound) { return random.below(draw++, bound); };
  size_t refused = 0;
  for (int variant = 0; variant < 4'000; ++variant) {
    std::string text = good;
    for (uint64_t edits = 1 + below(8); edits > 0; --edits) {
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = letters[below(letters.size())];
          break;
        case 1:
          text.erase(at, 1 + below(20));
          break;
        case 2:
          text.insert(at, 1, letters[below(letters.size())]);
          break;
        default:
          text.insert(at, text.substr(below(text.size()), 1 + below(40)));
      }
    }
    try {
      parse_recipe(text, "mutant.toml", {}, recipe_schema());
    } catch (const InputError& error) {
      ++refused;
      const std::string message = error.what();
      ASSERT_EQ(message.substr(0, 11), "mutant.toml") << message << "\n" << text;
      ASSERT_LE(std::count(message.begin(), message.end(), '\n'), 2) << message;
    }
  }
  EXPECT_GT(refused, 1'000u);
  EXPECT_LT(refused, 4'000u);
}

}  // namespace
}  // namespace trireme
