#include "infer/sampler.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/random.h"

namespace trireme {
namespace {

at::Tensor tensor_of(const std::vector<double>& values) {
  const at::Tensor x = at::empty({static_cast<int64_t>(values.size())}, at::kDouble);
  std::ranges::copy(values, x.mutable_data_ptr<double>());
  return x;
}

std::vector<double> logs(std::vector<double> p) {
  for (double& x : p) x = std::log(x);
  return p;
}

std::vector<double> random_logits(uint64_t draw, size_t size) {
  const RandomStream stream(23, "test logits", draw);
  std::vector<double> z;
  for (size_t i = 0; i < size; ++i) z.push_back(2 * stream.normal(i));
  return z;
}

// Each filter by its definition, token by token and without sorting.
std::vector<double> by_definition(std::vector<double> z, const std::vector<int32_t>& text,
                                  const SamplingOptions& o) {
  const size_t n = z.size();
  for (size_t i = 0; i < n; ++i) {
    if (std::ranges::find(text, static_cast<int32_t>(i)) != text.end())
      z[i] = z[i] > 0 ? z[i] / o.repetition_penalty : z[i] * o.repetition_penalty;
    z[i] /= o.temperature;
  }
  std::vector<bool> out(n, false);
  const auto above = [&](size_t i, const auto& value) {  // summed over what is more probable
    double sum = 0;
    for (size_t j = 0; j < n; ++j)
      if (!out[j] && z[j] > z[i]) sum += value(j);
    return sum;
  };
  const auto probabilities = [&] {
    std::vector<double> p(n, 0);
    double total = 0;
    for (size_t i = 0; i < n; ++i)
      if (!out[i]) total += p[i] = std::exp(z[i]);
    for (double& x : p) x /= total;
    return p;
  };
  const auto leave_out = [&](const auto& condition) {
    std::vector<bool> next = out;
    for (size_t i = 0; i < n; ++i) next[i] = out[i] || condition(i);
    out = next;
  };
  if (o.top_k > 0)
    leave_out([&](size_t i) {
      return above(i, [](size_t) { return 1; }) >= static_cast<double>(o.top_k);
    });
  std::vector<double> p = probabilities();
  leave_out([&](size_t i) { return above(i, [&](size_t j) { return p[j]; }) >= o.top_p; });
  p = probabilities();
  const double greatest = *std::ranges::max_element(p);
  leave_out([&](size_t i) { return p[i] < o.min_p * greatest; });
  return probabilities();
}

const SamplingOptions kOptions[] = {
    {},
    {.temperature = 0.6},
    {.temperature = 1.7, .repetition_penalty = 1.4},
    {.top_k = 5},
    {.top_p = 0.8},
    {.min_p = 0.1},
    {.temperature = 0.9, .top_k = 20, .top_p = 0.9, .min_p = 0.02, .repetition_penalty = 0.8},
    {.temperature = 3, .top_p = 0.97, .repetition_penalty = 2},
};

TEST(Sampler, DistributionIsThatOfTheDefinitions) {
  const std::vector<int32_t> text = {3, 3, 0, 17, 3};
  for (uint64_t draw = 0; draw < 20; ++draw)
    for (size_t size : {30, 700}) {  // the latter: more than top-p sorts at once
      const auto z = random_logits(draw, size);
      for (const SamplingOptions& options : kOptions) {
        const auto got = sampling_distribution(tensor_of(z), text, options);
        const auto wanted = by_definition(z, text, options);
        for (size_t i = 0; i < size; ++i) ASSERT_NEAR(got[i], wanted[i], 1e-13) << i;
      }
    }
}

TEST(Sampler, FiltersByHand) {
  const at::Tensor logits = tensor_of(logs({0.1, 0.4, 0.3, 0.2}));
  const auto expect = [&](const SamplingOptions& options, std::vector<double> wanted) {
    const auto got = sampling_distribution(logits, {}, options);
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got[i], wanted[i], 1e-12) << i;
  };
  expect({}, {0.1, 0.4, 0.3, 0.2});
  expect({.temperature = 0}, {0, 1, 0, 0});
  expect({.temperature = 0.5}, {0.01 / 0.3, 0.16 / 0.3, 0.09 / 0.3, 0.04 / 0.3});
  expect({.top_k = 2}, {0, 4.0 / 7, 3.0 / 7, 0});
  expect({.top_p = 0.65}, {0, 4.0 / 7, 3.0 / 7, 0});
  expect({.top_p = 0.75}, {0, 4.0 / 9, 3.0 / 9, 2.0 / 9});
  expect({.min_p = 0.6}, {0, 4.0 / 7, 3.0 / 7, 0});
}

TEST(Sampler, TiesAtTheLastOfTopKAllStay) {
  const auto p = sampling_distribution(tensor_of({1, 2, 1, 0, 1}), {}, {.top_k = 2});
  EXPECT_EQ(std::ranges::count(p, 0.0), 1);
  EXPECT_EQ(sample(tensor_of({1, 2, 2, 0}), {}, {.temperature = 0}, 0, 0).id, 1);
}

TEST(Sampler, OptionsAndLogitsOutOfRange) {
  for (const SamplingOptions& options : {SamplingOptions{.temperature = -1},
                                         {.temperature = NAN},
                                         {.top_k = -1},
                                         {.top_p = 0},
                                         {.top_p = 1.1},
                                         {.min_p = -0.1},
                                         {.min_p = NAN},
                                         {.repetition_penalty = 0}})
    EXPECT_THROW(check(options), InputError);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_THROW(sample(tensor_of({0, NAN, 1}), {}, {}, 0, 0), RunError);
  EXPECT_THROW(sample(tensor_of({0, kInfinity, 1}), {}, {}, 0, 0), RunError);
  EXPECT_EQ(sample(tensor_of({-kInfinity, 0.5, -kInfinity}), {}, {}, 0, 0).id, 1);
}

// Draws of many sequences at several places: chi-square over the tokens whose expectation is 5 or
// more, the rest as one class. With k degrees of freedom it exceeds k + 2 sqrt(k x) + 2 x with
// probability e^-x at most (Laurent and Massart, 2000); x = 9.3: one in 10,000.
TEST(Sampler, FrequenciesFollowTheExactDistribution) {
  constexpr uint64_t kDraws = 20'000;
  constexpr double kX = 9.3;
  const std::vector<int32_t> text = {3, 0, 17};
  const auto z = random_logits(99, 30);
  for (SamplingOptions options : kOptions) {
    options.seed = 17;
    const auto p = by_definition(z, text, options);
    std::vector<double> counts(p.size(), 0);
    for (uint64_t i = 0; i < kDraws; ++i) {
      const SampledToken token = sample(tensor_of(z), text, options, i, i % 7);
      const auto id = static_cast<size_t>(token.id);
      ASSERT_GT(p[id], 0);
      ++counts[id];
      ASSERT_NEAR(token.sampling_log_prob, std::log(p[id]), 1e-11);
    }
    double chi_square = 0, rare = 0, rare_expected = 0, freedom = -1;
    const auto add = [&](double count, double expected) {
      chi_square += (count - expected) * (count - expected) / expected;
      ++freedom;
    };
    for (size_t i = 0; i < p.size(); ++i) {
      const double expected = kDraws * p[i];
      if (expected >= 5) add(counts[i], expected);
      else rare += counts[i], rare_expected += expected;
    }
    if (rare_expected > 0) add(rare, rare_expected);
    EXPECT_LT(chi_square, freedom + 2 * std::sqrt(freedom * kX) + 2 * kX)
        << "top_k " << options.top_k << " top_p " << options.top_p << " seed " << options.seed;
  }
}

TEST(Sampler, LogProbabilityIsTheModelsOwn) {
  const auto z = random_logits(5, 50);
  double total = 0;
  for (double x : z) total += std::exp(x);
  for (uint64_t i = 0; i < 50; ++i)
    for (const SamplingOptions& options : {kOptions[6], SamplingOptions{.temperature = 0}}) {
      const SampledToken token = sample(tensor_of(z), {}, options, i, 0);
      EXPECT_NEAR(token.log_prob, z[static_cast<size_t>(token.id)] - std::log(total), 1e-12);
    }
}

// Seed, sequence and place each change the draw.
TEST(Sampler, ADrawIsAFunctionOfSeedSequenceAndPlace) {
  const at::Tensor even = tensor_of(std::vector<double>(1000, 0));
  const auto id = [&](uint64_t seed, uint64_t sequence, uint64_t place) {
    return sample(even, {}, {.seed = seed}, sequence, place).id;
  };
  EXPECT_EQ(id(1, 2, 3), id(1, 2, 3));
  EXPECT_NE(id(1, 2, 3), id(2, 2, 3));
  EXPECT_NE(id(1, 2, 3), id(1, 3, 3));
  EXPECT_NE(id(1, 2, 3), id(1, 2, 4));
}

}  // namespace
}  // namespace trireme
