// Golden values: computed in double precision from the published formulas, six digits each.
#include "sparse/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace trireme {
namespace {

constexpr double kDigits = 1e-6;  // the golden values have six or seven digits

// One row outside of any table.
template <class Optimizer>
struct Row {
  Row(Optimizer o, std::vector<float> first)
      : optimizer(o), w(std::move(first)), moments(w.size() * Optimizer::kMoments) {
    optimizer.begin(state());
  }
  RowState state() {
    return {w.data(), moments.data(), row_moment, updates, static_cast<int64_t>(w.size())};
  }
  void step(const std::vector<float>& g) {
    ++updates;
    optimizer.apply(state(), g.data());
  }

  Optimizer optimizer;
  std::vector<float> w, moments;
  float row_moment = 0;
  uint32_t updates = 0;
};

TEST(SgdRows, StepsAlongTheGradient) {
  Row row(SgdRows{.lr = 0.1f}, {1, 2});
  row.step({1, -2});
  EXPECT_NEAR(row.w[0], 0.9, kDigits);
  EXPECT_NEAR(row.w[1], 2.2, kDigits);
}

TEST(AdagradRows, GivesTheGoldenValues) {
  Row row(AdagradRows{.lr = 0.1f}, {1});
  const double expected[] = {.9, .855279, .942566};
  const float gradients[] = {1, .5, -2};
  for (int t = 0; t < 3; ++t) {
    row.step({gradients[t]});
    EXPECT_NEAR(row.w[0], expected[t], kDigits) << "step " << t;
  }
}

TEST(AdagradRows, MayStartWithAnAccumulator) {
  Row row(AdagradRows{.lr = 0.1f, .epsilon = 0, .initial_accumulator = 0.1f}, {1});
  row.step({0});
  EXPECT_EQ(row.w[0], 1);
  row.step({.5});
  EXPECT_NEAR(row.w[0], 1 - .1 * .5 / std::sqrt(.1 + .25), kDigits);
}

TEST(RowAdagradRows, GivesTheGoldenValues) {
  Row row(RowAdagradRows{.lr = 0.1f}, {1, -1});
  row.step({1, 0});
  EXPECT_NEAR(row.row_moment, .5, kDigits);
  EXPECT_NEAR(row.w[0], .8585786, kDigits);
  EXPECT_NEAR(row.w[1], -1, kDigits);
  row.step({1, 1});
  EXPECT_NEAR(row.row_moment, 1.5, kDigits);
  EXPECT_NEAR(row.w[0], .7769290, kDigits);
  EXPECT_NEAR(row.w[1], -1.0816497, kDigits);
}

// Touched at steps 1 and 4 of the run: only the row's own updates count.
TEST(AdamRows, TakesAFirstStepOfExactlyTheRateWheneverItComes) {
  Row row(AdamRows{.lr = 0.1f}, {0});
  row.step({1});
  EXPECT_NEAR(row.w[0], -.1, kDigits);
  row.step({1});
  EXPECT_NEAR(row.w[0], -.2, kDigits);
}

// 300 random steps against the formulas in double. Each of them rounds a few times at the scale of
// lr and w, and the errors partly cancel.
TEST(AdamRows, FollowsTheFormulasInDouble) {
  const RandomStream random(5, "adam");
  Row row(AdamRows{.lr = 0.01f}, {0.5f});
  const double b1 = 0.9f, b2 = 0.999f, lr = 0.01f;
  double w = 0.5, m = 0, v = 0;
  for (int t = 1; t <= 300; ++t) {
    const auto g = static_cast<float>(random.normal(t));
    row.step({g});
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * g * g;
    w -= lr * (m / (1 - std::pow(b1, t))) / (std::sqrt(v / (1 - std::pow(b2, t))) + 1e-8);
    ASSERT_NEAR(row.w[0], w, 5e-6) << "step " << t;
  }
}

TEST(FtrlRows, GivesTheGoldenValues) {
  Row row(FtrlRows{.alpha = .1f, .beta = 1, .l1 = 1, .l2 = 1}, {0});
  Row other_sign = row;
  const double expected[] = {-.0322581, -.0022827, -.0170263};
  const float gradients[] = {2, -1, .5};
  for (int t = 0; t < 3; ++t) {
    row.step({gradients[t]});
    other_sign.step({-gradients[t]});
    EXPECT_NEAR(row.w[0], expected[t], kDigits) << "step " << t;
    EXPECT_EQ(other_sign.w[0], -row.w[0]);
    EXPECT_EQ(row.optimizer.weight(row.moments[0], row.moments[1]),
              row.w[0]);  // a function of (z, n)
  }
  EXPECT_NEAR(row.moments[0], 1.5774114, kDigits);
  EXPECT_NEAR(row.moments[1], 5.25, kDigits);
}

TEST(FtrlRows, GivesTheGoldenValuesOfTensorFlowsForm) {
  Row row(FtrlRows{.alpha = .1f, .beta = 0, .l1 = 1, .l2 = 2, .initial_accumulator = .1f}, {0});
  const double expected[] = {-.0449469, -.0042687, -.0241652};
  const float gradients[] = {2, -1, .5};
  for (int t = 0; t < 3; ++t) {
    row.step({gradients[t]});
    EXPECT_NEAR(row.w[0], expected[t], kDigits) << "step " << t;
  }
}

TEST(FtrlRows, StartsFromGivenWeightsAndIsExactlyZeroWithinL1) {
  Row row(FtrlRows{.alpha = .1f, .beta = 1, .l1 = .5f, .l2 = 1}, {.25f, -3, 0});
  for (int d = 0; d < 3; ++d)
    EXPECT_NEAR(row.optimizer.weight(row.moments[d], row.moments[3 + d]), row.w[d], kDigits);
  row.step({0, 0, .4f});  // a zero gradient moves nothing
  EXPECT_NEAR(row.w[0], .25, kDigits);
  EXPECT_NEAR(row.w[1], -3, kDigits);
  EXPECT_EQ(row.w[2], 0);
}

template <class Optimizer>
class ZeroGradient : public testing::Test {};
using Lazy = testing::Types<SgdRows, AdagradRows, RowAdagradRows, FtrlRows>;
TYPED_TEST_SUITE(ZeroGradient, Lazy);

TYPED_TEST(ZeroGradient, LeavesTheRowAsItIs) {
  Row row(TypeParam{}, {0, 0});
  row.step({1, -.5f});
  const auto w = row.w, moments = row.moments;
  const float row_moment = row.row_moment;
  row.step({0, 0});
  EXPECT_EQ(row.w, w);
  EXPECT_EQ(row.moments, moments);
  EXPECT_EQ(row.row_moment, row_moment);
}

// All D: the unrolled sum meets every tail. Multiples of 1/8 below 2^10 sum exactly in fp32.
TEST(SumOfSquares, IsExactWhereFloatIs) {
  for (int64_t dim = 0; dim <= 67; ++dim) {
    std::vector<float> x(dim);
    double expected = 0;
    for (int64_t d = 0; d < dim; ++d) {
      x[d] = static_cast<float>(d % 9 - 4) / 2;
      expected += x[d] * x[d];
    }
    EXPECT_EQ(sum_of_squares(x.data(), dim), expected) << "D " << dim;
  }
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(MakeRowOptimizer, KnowsEveryKindByName) {
  for (const char* kind : {"sgd", "adagrad", "row_adagrad", "adam", "ftrl"})
    EXPECT_EQ(kind_of(make_row_optimizer(kind, {})), kind);
  const auto ftrl = make_row_optimizer("ftrl", {{"l1", 2}, {"alpha", .5}});
  const OptimizerSettings expected = {
      {"alpha", .5}, {"beta", 1}, {"l1", 2}, {"l2", 0}, {"initial_accumulator", 0}};
  EXPECT_EQ(settings_of(ftrl), expected);
  EXPECT_EQ(moments_of(ftrl), 2);
}

TEST(MakeRowOptimizer, SaysWhatIsWrong) {
  EXPECT_EQ(message_of([] { make_row_optimizer("adamw", {}); }),
            "table optimizer: no kind 'adamw'; there are sgd, adagrad, row_adagrad, adam, ftrl");
  EXPECT_EQ(message_of([] { make_row_optimizer("sgd", {{"beta1", 1}}); }),
            "table optimizer sgd: no setting 'beta1'; it has lr");
  EXPECT_EQ(message_of([] { make_row_optimizer("sgd", {{"lr", -1}}); }),
            "table optimizer sgd: lr must not be negative, got -1");
  EXPECT_EQ(message_of([] { make_row_optimizer("sgd", {{"lr", NAN}}); }),
            "table optimizer sgd: lr must be a finite number, got nan");
  EXPECT_NE(message_of([] { make_row_optimizer("adagrad", {{"epsilon", 0}}); }), "");
  EXPECT_NE(message_of([] { make_row_optimizer("adam", {{"beta2", 1}}); }), "");
  EXPECT_NE(message_of([] { make_row_optimizer("ftrl", {{"beta", 0}}); }), "");
}

}  // namespace
}  // namespace trireme
