#include "data/blend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <set>

#include "base/error.h"

namespace trireme {
namespace {

using Weights = std::vector<double>;

class BlendOf : public ::testing::TestWithParam<Weights> {};

// The definition itself, at every prefix of a period and one place beyond it.
TEST_P(BlendOf, EveryPrefixHasItsShareToWithinOneSample) {
  const Weights weights = GetParam();
  const Blend blend(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint64_t> had(weights.size(), 0);
  double worst = 0;
  for (uint64_t n = 0; n <= blend.period(); ++n) {
    const Blend::Place place = blend(n);
    ASSERT_LT(place.source, weights.size());
    ASSERT_EQ(place.index, had[place.source]) << "place " << n;
    ++had[place.source];
    for (size_t k = 0; k < weights.size(); ++k)
      worst = std::max(worst, std::abs(static_cast<double>(had[k]) -
                                       static_cast<double>(n + 1) * weights[k] / sum));
  }
  // Tijdeman's bound is below 1; rounded weights add at most one place in a whole period.
  const bool exact = blend.period() < 1 << 20;
  EXPECT_LT(worst, exact ? 1.0 : 2.0);
}

INSTANTIATE_TEST_SUITE_P(
    Weights, BlendOf,
    ::testing::Values(Weights{1}, Weights{5}, Weights{1, 1}, Weights{0.7, 0.3}, Weights{3, 2, 1},
                      Weights{0.5, 0.25, 0.125, 0.125}, Weights{1, 1000},
                      Weights{1, 1, 1, 1, 1, 1, 7}, Weights{0.013, 0.987}, Weights{1e6, 2e6},
                      Weights{1e-3, 5e-3},
                      Weights{std::numbers::pi, std::numbers::e, 1},  // no decimals
                      Weights{1e-9, 1}));                             // below one place in a period

TEST(Blend, FindsTheSmallestPeriodOfDecimals) {
  EXPECT_EQ(Blend(Weights{0.7, 0.3}).period(), 10u);
  EXPECT_EQ(Blend(Weights{0.5, 0.25, 0.25}).period(), 4u);
  EXPECT_EQ(Blend(Weights{20, 30}).counts(), (std::vector<uint64_t>{2, 3}));
  EXPECT_EQ(Blend(Weights{42}).period(), 1u);
  EXPECT_EQ(Blend(Weights{std::numbers::pi, 1}).period(), 1u << 20);
}

TEST(Blend, EveryPlaceOfEverySourceComesOnce) {
  const Blend blend(Weights{0.6, 0.3, 0.1});
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (uint64_t n = 0; n < 1000; ++n) {
    const Blend::Place place = blend(n);
    EXPECT_TRUE(seen.emplace(place.source, place.index).second) << n;
  }
  EXPECT_TRUE(seen.contains({0, 599}) && seen.contains({1, 299}) && seen.contains({2, 99}));
}

TEST(Blend, RefusesWeightsThatAreNone) {
  EXPECT_THROW(Blend(Weights{}), InputError);
  EXPECT_THROW(Blend(Weights{1, 0}), InputError);
  EXPECT_THROW(Blend(Weights{-1}), InputError);
  EXPECT_THROW(Blend(Weights{1, NAN}), InputError);
  EXPECT_THROW(Blend(Weights{INFINITY}), InputError);
}

}  // namespace
}  // namespace trireme
