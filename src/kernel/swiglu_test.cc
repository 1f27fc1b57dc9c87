#include "kernel/swiglu.h"

#include <cmath>

#include "base/error.h"
#include "kernel/test_support.h"

namespace trireme::kernel {
namespace {

Differentiable swiglu_of(Mode mode) {
  return [=](const std::vector<at::Tensor>& in) { return swiglu(in[0], mode); };
}

// Some ten operations an element, each within a rounding or two.
TEST(Swiglu, FusedEqualsReference) {
  for_each_target([] {
    for (const auto dtype : {at::kDouble, at::kFloat})
      for (const int64_t rows : {0, 1, 3, 257})
        for (const int64_t width : {1, 7, 40, 256}) {
          const auto in = std::vector<at::Tensor>{normal({rows, 2 * width}, "x", dtype) * 3};
          const auto fused = run_with_gradients(swiglu_of(Mode::fused), in);
          const auto plain = run_with_gradients(swiglu_of(Mode::reference), in);
          for (size_t k = 0; k < 2; ++k)
            EXPECT_TRUE(close(fused[k], plain[k], 20 * epsilon(dtype), 1));
        }
  });
}

// The element itself, in relative terms, from where sigmoid is denormal to where it is one.
TEST(Swiglu, IsRightFarOut) {
  for_each_target([] {
    for (double gate = -80; gate <= 80; gate += 0.37) {
      const at::Tensor x = at::tensor({gate, 1.0}, at::kDouble).view({1, 2});
      const double exact = gate / (1 + std::exp(-gate));
      EXPECT_NEAR(swiglu(x, Mode::fused).item<double>(), exact, 1e-14 * std::abs(exact));
      const double rounded = static_cast<float>(gate);
      const double float_exact = rounded / (1 + std::exp(-rounded));
      // exp's argument is rounded too: |gate| / 2 units in the last place.
      EXPECT_NEAR(swiglu(x.to(at::kFloat), Mode::fused).item<double>(), float_exact,
                  (4 + std::abs(gate)) * epsilon(at::kFloat) * std::abs(float_exact));
    }
    const float inf = std::numeric_limits<float>::infinity();
    const auto at_gate = [](float gate) {
      return swiglu(at::tensor({gate, 1.0f}).view({1, 2}), Mode::fused).item<float>();
    };
    EXPECT_EQ(at_gate(1e30f), 1e30f);
    EXPECT_EQ(at_gate(-1e30f), 0);
    EXPECT_EQ(at_gate(inf), inf);
    EXPECT_TRUE(std::isnan(at_gate(std::nanf(""))));
  });
  EXPECT_NEAR(swiglu(at::ones({1, 2}, at::kDouble), Mode::fused).item<double>(), 0.7310585786,
              1e-10);
}

TEST(Swiglu, GradientsAreThoseOfDifferences) {
  for (const Mode mode : {Mode::fused, Mode::reference})
    EXPECT_TRUE(gradients_are_right(swiglu_of(mode), {normal({3, 14}, "x", at::kDouble)}));
}

TEST(Swiglu, RefusesWhatItCannotRead) {
  EXPECT_THROW(swiglu(at::zeros({3, 5}), Mode::fused), InternalError);
  EXPECT_THROW(swiglu(at::zeros({4, 3}).t(), Mode::fused), InternalError);
}

}  // namespace
}  // namespace trireme::kernel
