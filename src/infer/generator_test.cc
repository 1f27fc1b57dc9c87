#include "infer/generator.h"

#include <gtest/gtest.h>

#include <cmath>

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
      generator.generate(prompt, {.sampling = {.temperature = 0}, .max_tokens = 20}, 0);
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
  const std::vector<int32_t> prompt = {1, 2};
  const GenerationOptions greedy{.sampling = {.temperature = 0}, .max_tokens = 10};
  const auto all = generator.generate(prompt, greedy, 0);
  GenerationOptions ends = greedy;
  ends.end_tokens = {all[4]};
  const auto first = static_cast<size_t>(std::ranges::find(all, all[4]) - all.begin());
  EXPECT_EQ(generator.generate(prompt, ends, 0).size(), first);
  int seen = 0;
  EXPECT_EQ(generator.generate(prompt, greedy, 0, [&](int32_t) { return ++seen < 3; }).size(), 3u);
  EXPECT_THROW(generator.generate({}, greedy, 0), InputError);
  EXPECT_THROW(generator.generate(std::vector<int32_t>{9999}, greedy, 0), InputError);
}

// Probabilities of a small distribution, filtered by hand.
TEST(Sampler, FiltersAsDefined) {
  const at::Tensor logits = at::empty({4}, at::kDouble);
  const double p[] = {0.1, 0.4, 0.3, 0.2};
  for (int i = 0; i < 4; ++i) logits.mutable_data_ptr<double>()[i] = std::log(p[i]);
  const auto expect = [&](const SamplingOptions& options, std::vector<double> wanted) {
    const auto got = sampling_distribution(logits, options);
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12) << i;
  };
  expect({}, {0.1, 0.4, 0.3, 0.2});
  expect({.temperature = 0}, {0, 1, 0, 0});
  expect({.temperature = 0.5}, {0.01 / 0.3, 0.16 / 0.3, 0.09 / 0.3, 0.04 / 0.3});
  expect({.top_k = 2}, {0, 4.0 / 7, 3.0 / 7, 0});
  expect({.top_p = 0.65}, {0, 4.0 / 7, 3.0 / 7, 0});
  expect({.top_p = 0.75}, {0, 4.0 / 9, 3.0 / 9, 2.0 / 9});
  expect({.min_p = 0.6}, {0, 4.0 / 7, 3.0 / 7, 0});
  EXPECT_THROW(check({.top_p = 0}), InputError);
  EXPECT_THROW(check({.temperature = -1}), InputError);
}

// 20,000 draws from four tokens: chi-square with 3 degrees of freedom stays below 16.27 with
// probability 0.999.
TEST(Sampler, FrequenciesFollowTheDistribution) {
  const at::Tensor logits = at::empty({4}, at::kDouble);
  const double p[] = {0.1, 0.4, 0.3, 0.2};
  for (int i = 0; i < 4; ++i) logits.mutable_data_ptr<double>()[i] = std::log(p[i]);
  constexpr int kDraws = 20'000;
  int counts[4] = {};
  for (int i = 0; i < kDraws; ++i)
    ++counts[sample(logits, {.seed = 17}, static_cast<uint64_t>(i), 3)];
  double chi_square = 0;
  for (int i = 0; i < 4; ++i)
    chi_square += std::pow(counts[i] - kDraws * p[i], 2) / (kDraws * p[i]);
  EXPECT_LT(chi_square, 16.27);
}

}  // namespace
}  // namespace trireme
