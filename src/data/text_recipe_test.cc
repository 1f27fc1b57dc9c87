#include "data/text_recipe.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme {
namespace {

constexpr const char* kModel = R"(
task = "pretrain"
[run]
steps = 1
seed = 9
threads = 3
[model]
family = "llama"
layers = 1
hidden = 8
heads = 1
ffn = 8
[batch]
size = 1
[optimizer]
lr = 1e-3
)";

Recipe recipe_of(const std::string& data) {
  return parse_recipe(concat(kModel, "[data]\n", data), "test.toml", {}, recipe_schema());
}

TEST(TextRecipe, EveryKeyReachesItsOption) {
  const Recipe recipe = recipe_of(R"(
source = [{ path = "a", weight = 0.75 }, { path = "b.jsonl", weight = 0.25, field = "body" }]
field = "content"
tokenizer = { train = "bpe", vocab = 500 }
sequence = 32
bos = "<s>"
eos = "</s>"
held_out = 0.125
cache = "/tmp/prepared"
document_attention = false
document_positions = true
)");
  const CorpusOptions options = corpus_options(recipe);
  ASSERT_EQ(options.sources.size(), 2u);
  EXPECT_EQ(options.sources[0].path, "a");
  EXPECT_EQ(options.sources[0].field, "content");
  EXPECT_EQ(options.sources[0].weight, 0.75);
  EXPECT_EQ(options.sources[1].field, "body");
  EXPECT_EQ(options.train_vocab, 500);
  EXPECT_TRUE(options.tokenizer.empty());
  EXPECT_EQ(options.begin_of_text, "<s>");
  EXPECT_EQ(options.end_of_text, "</s>");
  EXPECT_EQ(options.held_out, 0.125);
  EXPECT_EQ(options.cache, "/tmp/prepared");
  EXPECT_EQ(options.threads, 3);
  const TextSampleOptions samples = sample_options(recipe, Split::held_out);
  EXPECT_EQ(samples.sequence, 32);
  EXPECT_EQ(samples.seed, 9u);
  EXPECT_EQ(samples.split, Split::held_out);
  EXPECT_FALSE(samples.document_attention);
  EXPECT_TRUE(samples.document_positions);
  EXPECT_EQ(samples.weights, (std::vector<double>{0.75, 0.25}));
}

TEST(TextRecipe, NoneIsNoToken) {
  const Recipe recipe =
      recipe_of("source = [\"a\"]\ntokenizer = \"t.json\"\nsequence = 32\nbos = \"none\"\n");
  EXPECT_EQ(corpus_options(recipe).begin_of_text, "");
}

TEST(TextRecipe, DefaultsAreThoseOfTheSchema) {
  const Recipe recipe =
      recipe_of("source = [\"a\", \"b\"]\ntokenizer = \"t.json\"\nsequence = 32\n");
  const CorpusOptions options = corpus_options(recipe);
  EXPECT_EQ(options.sources[1].field, "text");
  EXPECT_FALSE(options.sources[1].weight);
  EXPECT_EQ(options.tokenizer, "t.json");
  EXPECT_EQ(options.train_vocab, 0);
  EXPECT_EQ(options.held_out, 0.05);
  const TextSampleOptions samples = sample_options(recipe, Split::train);
  EXPECT_TRUE(samples.document_attention && samples.document_positions);
  EXPECT_TRUE(samples.weights.empty());
}

}  // namespace
}  // namespace trireme
