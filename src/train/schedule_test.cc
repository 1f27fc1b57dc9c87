#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme {
namespace {

// Values by hand at the first, a middle and the last step, and beyond it.
TEST(Schedule, FollowsItsFormula) {
  using Kind = Schedule::Kind;
  Schedule s{.kind = Kind::cosine, .peak = 2, .min_ratio = 0.1, .steps = 110, .warmup_steps = 10};
  EXPECT_DOUBLE_EQ(s.learning_rate(1), 0.2);
  EXPECT_DOUBLE_EQ(s.learning_rate(10), 2);
  EXPECT_NEAR(s.learning_rate(60), 0.2 + 1.8 / 2, 1e-15);  // half way: the cosine is 0
  EXPECT_NEAR(s.learning_rate(110), 0.2, 1e-15);
  EXPECT_NEAR(s.learning_rate(500), 0.2, 1e-15);
  s.kind = Kind::linear;
  EXPECT_NEAR(s.learning_rate(35), 0.2 + 1.8 * 0.75, 1e-15);
  s.kind = Kind::constant;
  EXPECT_DOUBLE_EQ(s.learning_rate(77), 2);
  s.kind = Kind::wsd;
  s.decay_steps = 20;
  EXPECT_DOUBLE_EQ(s.learning_rate(90), 2);
  EXPECT_NEAR(s.learning_rate(95), 0.2 + 1.8 * (1 - std::sqrt(0.25)), 1e-15);
  EXPECT_NEAR(s.learning_rate(110), 0.2, 1e-15);
}

// Re-warming: from where the last run ended to the peak, in equal steps.
TEST(Schedule, TheWarmupRisesFromItsStart) {
  const Schedule s{.kind = Schedule::Kind::cosine,
                   .peak = 2,
                   .min_ratio = 0.1,
                   .start_ratio = 0.25,
                   .steps = 110,
                   .warmup_steps = 10};
  EXPECT_NEAR(s.learning_rate(1), 0.5 + 0.15, 1e-15);
  EXPECT_NEAR(s.learning_rate(5), 0.5 + 0.75, 1e-15);
  EXPECT_DOUBLE_EQ(s.learning_rate(10), 2);
  EXPECT_NEAR(s.learning_rate(110), 0.2, 1e-15);
}

TEST(Schedule, WithoutWarmupBeginsAtThePeak) {
  const Schedule s{.kind = Schedule::Kind::constant, .peak = 3, .steps = 1};
  EXPECT_DOUBLE_EQ(s.learning_rate(1), 3);
}

}  // namespace
}  // namespace trireme
