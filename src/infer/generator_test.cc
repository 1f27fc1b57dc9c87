#include "infer/generator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "infer/test_model.h"

namespace trireme {
namespace {

struct Tiny {
  std::unique_ptr<LanguageModel> family = tiny_llama(true);
  Model model = family->build(at::kDouble, 32);
  Lanes lanes{2, false, nullptr};
  Parameters parameters{model, at::kDouble, Mesh(), 0, false, 2};
  Tiny() { parameters.initialize(11, 1); }
};

// Greedy generation with the cache must choose, at each place, the token that an uncached pass over
// the whole text gives the greatest probability; its log-probability is checked against every other
// token's.
TEST(Generator, CachedGreedyChoicesAreTheUncachedBest) {
  Tiny tiny;
  Generator generator(*tiny.family, tiny.model, tiny.parameters, tiny.lanes, {},
                      kernel::Mode::fused, 32);
  const std::vector<int32_t> prompt = {7, 3, 19, 42};
  const auto generated =
      generator.generate({&prompt, 1}, {.sampling = {.temperature = 0}, .max_tokens = 20})[0].ids();
  ASSERT_EQ(generated.size(), 20u);
  Scorer scorer(*tiny.family, tiny.model, tiny.parameters, tiny.lanes, {}, kernel::Mode::reference);
  std::vector<int32_t> text = prompt;
  for (int32_t token : generated) {
    double best = -1e30;
    int32_t best_token = -1;
    for (int32_t other = 0; other < tiny.family->vocab(); ++other) {
      text.push_back(other);
      const double log_prob = scorer.log_probs(text).back();
      text.pop_back();
      if (log_prob > best) best = log_prob, best_token = other;
    }
    EXPECT_EQ(token, best_token) << "after " << text.size() << " tokens";
    text.push_back(token);
  }
}

TEST(Generator, EndsAtTheEndTokenAndAtTheCallersWord) {
  Tiny tiny;
  Generator generator(*tiny.family, tiny.model, tiny.parameters, tiny.lanes, {},
                      kernel::Mode::fused, 32);
  using Finish = Generated::Finish;
  const std::vector<int32_t> prompt = {1, 2};
  const GenerationOptions greedy{.sampling = {.temperature = 0}, .max_tokens = 10};
  const auto of = [&](const GenerationOptions& options, const Generator::Listener& listener = {}) {
    return generator.generate({&prompt, 1}, options, 0, listener)[0];
  };
  const auto all = of(greedy).ids();
  EXPECT_EQ(of(greedy).finish, Finish::length);
  GenerationOptions ends = greedy;
  ends.end_tokens = {all[4]};
  const auto first = static_cast<size_t>(std::ranges::find(all, all[4]) - all.begin());
  EXPECT_EQ(of(ends).tokens.size(), first);
  EXPECT_EQ(of(ends).finish, Finish::end);
  int seen = 0;
  const auto cut =
      of(greedy, {.on_token = [&](size_t, const SampledToken&) { return ++seen < 3; }});
  EXPECT_EQ(cut.tokens.size(), 3u);
  EXPECT_EQ(cut.finish, Finish::caller);
  GenerationOptions many = greedy;
  many.max_tokens = 1000;
  EXPECT_EQ(of(many).tokens.size(), 30u) << "as many as the cache has room for";
  for (const std::vector<int32_t>& wrong :
       {std::vector<int32_t>{}, {9999}, {-1}, std::vector<int32_t>(32, 1)})
    EXPECT_THROW(generator.generate({&wrong, 1}, greedy), InputError);
}

// Any number of prompts of any lengths: each text is, to the bit, the one that its prompt gives
// alone, whatever runs beside it and whichever slot it takes.
TEST(Generator, ABatchOfUnequalPromptsGivesWhatEachGivesAlone) {
  Tiny tiny;
  const auto make = [&](int64_t batch) {
    return Generator(*tiny.family, tiny.model, tiny.parameters, tiny.lanes, {}, kernel::Mode::fused,
                     32, batch);
  };
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < 11; ++i) {
    prompts.emplace_back();
    for (int32_t j = 0; j <= i * 5 % 13; ++j) prompts.back().push_back((i * 17 + j * 5) % 61);
  }
  GenerationOptions options{
      .sampling = {.temperature = 1.2, .seed = 6}, .max_tokens = 17, .end_tokens = {4, 9}};
  Generator one = make(1);
  std::vector<Generated> alone;
  for (size_t i = 0; i < prompts.size(); ++i)
    alone.push_back(one.generate({&prompts[i], 1}, options, i)[0]);
  std::set<size_t> lengths;
  for (int64_t batch : {1, 3, 8}) {
    Generator generator = make(batch);
    std::vector<std::vector<int32_t>> seen(prompts.size());
    std::vector<int> ended(prompts.size());
    const auto together = generator.generate(prompts, options, 0,
                                             {.on_token =
                                                  [&](size_t i, const SampledToken& token) {
                                                    EXPECT_EQ(ended[i], 0);
                                                    seen[i].push_back(token.id);
                                                    return true;
                                                  },
                                              .on_done =
                                                  [&](size_t i, const Generated& done) {
                                                    ++ended[i];
                                                    EXPECT_EQ(done.ids(), alone[i].ids());
                                                  }});
    for (size_t i = 0; i < prompts.size(); ++i) {
      EXPECT_EQ(together[i].ids(), alone[i].ids()) << "prompt " << i << " in a batch of " << batch;
      EXPECT_EQ(together[i].finish, alone[i].finish);
      EXPECT_EQ(seen[i], alone[i].ids());
      EXPECT_EQ(ended[i], 1);
      lengths.insert(alone[i].tokens.size());
      for (size_t t = 0; t < alone[i].tokens.size(); ++t)
        EXPECT_EQ(together[i].tokens[t].log_prob, alone[i].tokens[t].log_prob);
    }
  }
  EXPECT_GT(lengths.size(), 3u) << "all ended at once: slots were never taken over";
}

// In single precision the two ways of summing differ by a few units in the last place of scores of
// about ten: 1e-5 is the bound that users are promised.
TEST(Generator, CachedAndUncachedScoresAgree) {
  for (const auto dtype : {at::kFloat, at::kDouble})
    for (const char* type : {"llama", "qwen3", "mistral", "gemma2", "gemma3_text", "gpt2"}) {
      const auto family = load_language_model(tiny_config(type, true), type);
      const Model model = family->build(dtype, 16);
      Lanes lanes(1, false, nullptr);
      Parameters parameters(model, dtype, Mesh(), 0, false, 1);
      parameters.initialize(11, 1);
      Generator generator(*family, model, parameters, lanes, {}, kernel::Mode::fused, 16, 2);
      const std::vector<std::vector<int32_t>> prompts = {{7, 3, 19, 42, 1}, {8}};
      const auto generated =
          generator.generate(prompts, {.sampling = {.seed = 3}, .max_tokens = 10});
      Scorer scorer(*family, model, parameters, lanes, {}, kernel::Mode::fused);
      for (size_t i = 0; i < prompts.size(); ++i) {
        std::vector<int32_t> text = prompts[i];
        for (int32_t id : generated[i].ids()) text.push_back(id);
        const auto scores = scorer.log_probs(text);
        ASSERT_EQ(generated[i].tokens.size(), 10u);
        for (size_t t = 0; t < 10; ++t)
          EXPECT_NEAR(generated[i].tokens[t].log_prob, scores[prompts[i].size() - 1 + t],
                      dtype == at::kFloat ? 1e-5 : 1e-12)
              << type << ", token " << t;
      }
    }
}

}  // namespace
}  // namespace trireme
