#include "metric/click_metrics.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace trireme {
namespace {

// Every pair of a click and a non-click, one by one.
double auc_of_pairs(const std::vector<std::pair<double, bool>>& samples) {
  double wins = 0, pairs = 0;
  for (const auto& [p, clicked] : samples)
    for (const auto& [q, other] : samples)
      if (clicked && !other) {
        wins += p > q ? 1 : p == q ? 0.5 : 0;
        pairs += 1;
      }
  return wins / pairs;
}

TEST(ClickMetrics, AucEqualsThePairsOneByOne) {
  const RandomStream random(23, "auc");
  for (uint64_t levels : {1, 2, 7, 1000}) {  // few levels: many ties
    std::vector<std::pair<double, bool>> samples;
    ClickMetrics all, halves[2];
    for (uint64_t i = 0; i < 300; ++i) {
      const double p = static_cast<double>(random.below(2 * i + levels * 1000, levels)) /
                       static_cast<double>(levels);
      const bool clicked = random.uniform(2 * i + 1) < p / 2 + 0.2;
      samples.push_back({p, clicked});
      all.add(p, clicked);
      halves[i % 2].add(p, clicked);
    }
    EXPECT_NEAR(all.auc(), auc_of_pairs(samples), 1e-12) << levels;
    halves[0].merge(halves[1]);
    EXPECT_NEAR(halves[0].auc(), all.auc(), 1e-12);
    EXPECT_NEAR(halves[0].log_loss(), all.log_loss(), 1e-12);
    EXPECT_EQ(halves[0].samples(), 300);
  }
}

// By hand: labels 1 0 1 0 with p = .8 .4 .6 .6; pairs: .8 > .4, .8 > .6, .6 > .4, .6 = .6.
TEST(ClickMetrics, SmallCaseByHand) {
  ClickMetrics m;
  m.add(0.8, true);
  m.add(0.4, false);
  m.add(0.6, true);
  m.add(0.6, false);
  EXPECT_DOUBLE_EQ(m.auc(), 3.5 / 4);
  const double loss = -(std::log(0.8) + std::log(0.6) + std::log(0.6) + std::log(0.4)) / 4;
  EXPECT_NEAR(m.log_loss(), loss, 1e-15);
  EXPECT_NEAR(m.normalized_entropy(), loss / std::log(2), 1e-15);
  EXPECT_DOUBLE_EQ(m.calibration(), 2.4 / 2);
}

TEST(ClickMetrics, WhatIsNotDefinedIsNaN) {
  ClickMetrics m;
  EXPECT_TRUE(std::isnan(m.auc()));
  m.add(0.5, true);
  EXPECT_TRUE(std::isnan(m.auc()));
  EXPECT_THROW(m.add(1.5, true), InputError);
  EXPECT_THROW(m.add(NAN, true), InputError);
}

}  // namespace
}  // namespace trireme
