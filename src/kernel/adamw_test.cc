#include "kernel/adamw.h"

#include <cmath>

#include "base/error.h"
#include "kernel/test_support.h"

namespace trireme::kernel {
namespace {

AdamWStep step_at(int64_t t) {
  return {.lr = 0.1,
          .beta1 = 0.9,
          .beta2 = 0.95,
          .eps = 1e-8,
          .weight_decay = 0.1,
          .gradient_scale = 1,
          .t = t};
}

// p = 1, lr 0.1, weight decay 0.1, g = 0.5, -0.25, 0.125: the values of an independent computation.
TEST(AdamW, GivesTheKnownValues) {
  for_each_target([] {
    for (const Mode mode : {Mode::fused, Mode::reference}) {
      at::Tensor p = at::ones({1}, at::kDouble), m = at::zeros({1}, at::kDouble), v = m.clone();
      const double expected[] = {0.890000002000, 0.854263057856, 0.811052265478};
      for (int64_t t = 1; t <= 3; ++t) {
        adamw_(p,
               at::full({1},
                        t == 1   ? 0.5
                        : t == 2 ? -0.25
                                 : 0.125,
                        at::kDouble),
               m, v, step_at(t), mode);
        EXPECT_NEAR(p.item<double>(), expected[t - 1], 1e-12);
      }
    }
  });
}

// Ten steps of some ten roundings each.
TEST(AdamW, FusedEqualsReference) {
  for_each_target([] {
    for (const auto dtype : {at::kDouble, at::kFloat})
      for (const int64_t n : {0, 1, 7, 31, 5000}) {
        std::vector<std::vector<at::Tensor>> states;
        for (const Mode mode : {Mode::fused, Mode::reference}) {
          at::Tensor p = normal({n}, "p", dtype), m = at::zeros({n}, dtype), v = m.clone();
          for (int64_t t = 1; t <= 10; ++t) {
            AdamWStep step = step_at(t);
            step.gradient_scale = 0.3;
            adamw_(p, normal({n}, concat("g", t), dtype), m, v, step, mode);
          }
          states.push_back({p, m, v});
        }
        for (size_t k = 0; k < 3; ++k)
          EXPECT_TRUE(close(states[0][k], states[1][k], 100 * epsilon(dtype)));
      }
  });
}

TEST(AdamW, WorksOnAPieceOfABuffer) {
  for_each_target([] {
    const at::Tensor p = normal({40}, "p", at::kFloat), g = normal({40}, "g", at::kFloat);
    const at::Tensor m = at::zeros({40}), v = at::zeros({40}), before = p.clone();
    at::Tensor part = p.narrow(0, 3, 30), part_m = m.narrow(0, 3, 30), part_v = v.narrow(0, 3, 30);
    adamw_(part, g.narrow(0, 3, 30), part_m, part_v, step_at(1), Mode::fused);
    EXPECT_TRUE(at::equal(p.narrow(0, 0, 3), before.narrow(0, 0, 3)));
    EXPECT_TRUE(at::equal(p.narrow(0, 33, 7), before.narrow(0, 33, 7)));
    EXPECT_FALSE(at::equal(p.narrow(0, 32, 1), before.narrow(0, 32, 1)));
  });
}

TEST(AdamW, ANanStaysWhereItIs) {
  for_each_target([] {
    at::Tensor p = at::ones({9}), m = at::zeros({9}), v = at::zeros({9});
    const at::Tensor g = at::ones({9});
    g[8] = std::nanf("");
    adamw_(p, g, m, v, step_at(1), Mode::fused);
    EXPECT_TRUE(std::isnan(p[8].item<float>()));
    EXPECT_TRUE(p.narrow(0, 0, 8).isfinite().all().item<bool>());
  });
}

// A parameter that changes between forward and backward must be caught by autograd.
TEST(AdamW, IsSeenByAutograd) {
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    at::Tensor p = at::ones({4}), m = at::zeros({4}), v = at::zeros({4});
    const at::Tensor x = leaf(at::ones({4}));
    const at::Tensor y = (x * p).sum();
    adamw_(p, at::ones({4}), m, v, step_at(1), mode);
    EXPECT_THROW(y.backward(), c10::Error);
  }
}

TEST(AdamW, RefusesWhatItCannotRead) {
  at::Tensor p = at::ones({4}), m = at::zeros({4}), v = at::zeros({4}), short_v = at::zeros({3});
  EXPECT_THROW(adamw_(p, p, m, v, step_at(0), Mode::fused), InternalError);
  EXPECT_THROW(adamw_(p, p, m, short_v, step_at(1), Mode::fused), InternalError);
  EXPECT_THROW(adamw_(p, p.to(at::kDouble), m, v, step_at(1), Mode::fused), InternalError);
  at::Tensor every_other = at::ones({8}).slice(0, 0, 8, 2);
  EXPECT_EQ(
      message_of<InternalError>([&] { adamw_(every_other, p, m, v, step_at(1), Mode::fused); }),
      "adamw_: p must be contiguous, got Float [4] with strides [2] on cpu");
}

TEST(SumOfSquares, FusedEqualsReference) {
  for_each_target([] {
    for (const auto dtype : {at::kDouble, at::kFloat})
      for (const int64_t n : {0, 1, 7, 4095, 4096, 4097, 20'000}) {
        const at::Tensor x = normal({n}, "x", dtype);
        const SquareSum fused = sum_of_squares(x, Mode::fused);
        const SquareSum plain = sum_of_squares(x, Mode::reference);
        // Both in double: sums of thousands of positive terms.
        EXPECT_NEAR(fused.value, plain.value, 1e-12 * plain.value);
        EXPECT_TRUE(fused.finite && plain.finite);
      }
  });
}

TEST(SumOfSquares, TellsNanAndInfinityFromOverflow) {
  for_each_target([] {
    for (const Mode mode : {Mode::fused, Mode::reference}) {
      at::Tensor x = at::ones({21});
      x[20] = 3e38f;  // its square is beyond float
      EXPECT_TRUE(sum_of_squares(x, mode).finite);
      EXPECT_NEAR(sum_of_squares(x, mode).value, 9e76, 1e71);
      x[20] = std::numeric_limits<float>::infinity();
      EXPECT_FALSE(sum_of_squares(x, mode).finite);
      x[20] = std::nanf("");
      EXPECT_FALSE(sum_of_squares(x, mode).finite);
      EXPECT_TRUE(std::isnan(sum_of_squares(x, mode).value));
      EXPECT_TRUE(sum_of_squares(at::full({2}, 1e300, at::kDouble), mode).finite);
    }
  });
}

TEST(AddUp, AddsInOrderAndSquaresTheSum) {
  for_each_target([] {
    for (const int64_t n : {0, 1, 4097}) {
      at::Tensor a = normal({n}, "a", at::kFloat);
      const at::Tensor b = normal({n}, "b", at::kFloat), c = normal({n}, "c", at::kFloat);
      const at::Tensor expected = (a + b) + c;
      const std::vector<at::Tensor> others{b, c};
      const SquareSum sum = add_up_(a, others, Mode::fused);
      EXPECT_TRUE(at::equal(a, expected));
      EXPECT_EQ(sum.value, sum_of_squares(expected, Mode::fused).value);
      at::Tensor alone = expected.clone();
      EXPECT_EQ(add_up_(alone, {}, Mode::fused).value, sum.value);
      at::Tensor plain = b.clone();
      EXPECT_NEAR(add_up_(plain, std::vector<at::Tensor>{c}, Mode::reference).value,
                  sum_of_squares(b + c, Mode::fused).value, 1e-9 * n);
    }
  });
  at::Tensor a = at::ones({3});
  EXPECT_THROW(add_up_(a, std::vector<at::Tensor>{at::ones({4})}, Mode::fused), InternalError);
}

}  // namespace
}  // namespace trireme::kernel
