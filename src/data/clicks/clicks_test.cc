#include "data/clicks/clicks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/error.h"

namespace trireme {
namespace {

TEST(Clicks, AreAFunctionOfTheirNumber) {
  const Clicks a({.seed = 4}), b({.seed = 4}), other({.seed = 5});
  int differ = 0;
  for (uint64_t i : {0u, 1u, 7u, 1'000'000u}) {
    EXPECT_EQ(a.click(i).ids, b.click(i).ids);
    EXPECT_EQ(a.click(i).label, b.click(i).label);
    differ += a.click(i).ids != other.click(i).ids;
  }
  EXPECT_EQ(differ, 4);
}

// 20,000 rows: the share of clicks is the mean of the true probabilities, within five standard
// errors (0.018); the first id comes log(2) / log(n + 1) of the time, within five standard errors
// again.
TEST(Clicks, FollowTheirTruth) {
  const ClickOptions options{.fields = 3, .ids = 50, .seed = 9};
  const Clicks clicks(options);
  constexpr int kRows = 20'000;
  double clicked = 0, expected = 0, first = 0;
  for (uint64_t i = 0; i < kRows; ++i) {
    const ClickSample sample = clicks.click(i);
    double logit = options.bias;
    for (int64_t f = 0; f < 3; ++f) {
      const int64_t id = sample.ids[static_cast<size_t>(f)];
      ASSERT_TRUE(id >= 0 && id < 50);
      logit += clicks.weight(f, id);
    }
    EXPECT_NEAR(logit, sample.truth_logit, 1e-12);
    expected += 1 / (1 + std::exp(-logit));
    clicked += sample.label;
    first += sample.ids[0] == 0;
  }
  EXPECT_NEAR(clicked / kRows, expected / kRows, 0.018);
  EXPECT_NEAR(first / kRows, std::log(2) / std::log(51), 0.0135);
}

TEST(Clicks, RefuseNothingToDrawFrom) { EXPECT_THROW(Clicks({.ids = 0}), InputError); }

}  // namespace
}  // namespace trireme
