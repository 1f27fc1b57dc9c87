// The same step on every layout, lanes, micro-batching and recomputation gives the same numbers.
#include <gtest/gtest.h>

#include "infer/test_model.h"

namespace trireme {
namespace {

double error_of(const at::Tensor& a, const at::Tensor& b, double floor) {
  return (a - b).norm().item<double>() / std::max(b.norm().item<double>(), floor);
}

// Layouts differ by the order of sums alone: in fp64 that is below 1e-11 on loss, norm, gradients
// and weights.
void expect_equal(const TinyNumbers& a, const TinyNumbers& b, double bound,
                  const std::string& what) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  for (size_t step = 0; step < a.losses.size(); ++step) {
    EXPECT_NEAR(a.losses[step] / b.losses[step], 1, bound) << what;
    EXPECT_NEAR(a.norms[step] / b.norms[step], 1, bound) << what;
  }
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (const auto& [name, gradient] : b.gradients) {
    EXPECT_GT(gradient.norm().item<double>(), 0) << name;
    EXPECT_LE(error_of(a.gradients.at(name), gradient, 1e-4 * b.norms[0]), bound)
        << what << ", gradient of " << name;
    EXPECT_LE(error_of(a.weights.at(name), b.weights.at(name), 1e-9), bound)
        << what << ", weight " << name;
  }
}

class EveryLayout : public testing::TestWithParam<bool> {};

TEST_P(EveryLayout, EqualsOneRank) {
  const auto family = tiny_llama(GetParam());
  const TinyNumbers one = run_tiny(*family, at::kDouble, {});
  for (int lanes : {1, 2})
    for (int64_t micro : {1, 3})
      for (Recompute recompute : {Recompute::none, Recompute::block})
        for (auto [replica, shard] : {std::pair{1, 1}, {2, 1}, {1, 2}, {2, 2}, {1, 4}}) {
          const TinyLayout layout{replica, shard, lanes, micro, recompute};
          expect_equal(run_tiny(*family, at::kDouble, layout), one, 1e-11,
                       concat("replica ", replica, " shard ", shard, " lanes ", lanes, " micro ",
                              micro, " recompute ", recompute == Recompute::block));
        }
}

INSTANTIATE_TEST_SUITE_P(TiedAndUntied, EveryLayout, testing::Bool());

class EveryFamily : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<LanguageModel> family_ =
      load_language_model(tiny_config(GetParam(), true), GetParam());
};

TEST_P(EveryFamily, EqualsOneRank) {
  const TinyNumbers one = run_tiny(*family_, at::kDouble, {});
  for (const TinyLayout& layout : {TinyLayout{1, 1, 2, 1, Recompute::block},
                                   {2, 2, 1, 3, Recompute::none},
                                   {1, 4, 1, 1, Recompute::block}})
    expect_equal(run_tiny(*family_, at::kDouble, layout), one, 1e-11,
                 concat("replica ", layout.replica, " shard ", layout.shard));
}

TEST_P(EveryFamily, FusedEqualsThePlainForm) {
  TinyLayout plain;
  plain.mode = kernel::Mode::reference;
  expect_equal(run_tiny(*family_, at::kDouble, {}), run_tiny(*family_, at::kDouble, plain), 1e-11,
               "fused");
}

INSTANTIATE_TEST_SUITE_P(Families, EveryFamily,
                         testing::Values("llama", "qwen2", "qwen3", "mistral", "gemma2",
                                         "gemma3_text", "gpt2"));

// Single precision: loss and norm to 1e-6, gradients to 1e-5 of their double-precision values,
// weights not compared.
TEST(Modes, SinglePrecisionIsNearDouble) {
  const auto family = tiny_llama(false);
  const TinyNumbers wide = run_tiny(*family, at::kDouble, {}, 1),
                    narrow = run_tiny(*family, at::kFloat, {}, 1);
  EXPECT_NEAR(narrow.losses[0] / wide.losses[0], 1, 1e-6);
  for (const auto& [name, gradient] : wide.gradients)
    EXPECT_LE(error_of(narrow.gradients.at(name), gradient, 1e-4 * wide.norms[0]), 1e-5) << name;
}

TEST(Layouts, TheSameLayoutTwiceGivesTheSameBits) {
  const auto family = tiny_llama(true);
  const TinyLayout layout{1, 2, 2, 1, Recompute::block};
  const TinyNumbers a = run_tiny(*family, at::kFloat, layout),
                    b = run_tiny(*family, at::kFloat, layout);
  EXPECT_EQ(a.losses, b.losses);
  for (const auto& [name, weight] : a.weights)
    EXPECT_TRUE(weight.equal(b.weights.at(name))) << name;
}

TEST(Recompute, ChangesNoBit) {
  const auto family = tiny_llama(true);
  const TinyNumbers kept = run_tiny(*family, at::kFloat, {}),
                    again = run_tiny(*family, at::kFloat, {.recompute = Recompute::block});
  EXPECT_EQ(kept.losses, again.losses);
  for (const auto& [name, weight] : kept.weights)
    EXPECT_TRUE(weight.equal(again.weights.at(name))) << name;
}

}  // namespace
}  // namespace trireme
