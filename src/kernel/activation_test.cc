#include "kernel/activation.h"

#include <cmath>

#include "base/error.h"
#include "kernel/test_support.h"

namespace trireme::kernel {
namespace {

struct Named {
  const char* name;
  at::Tensor (*act)(const at::Tensor& x, Mode mode);
};
constexpr Named kActivations[] = {{"swiglu", swiglu}, {"geglu", geglu}, {"gelu", gelu}};

Differentiable function_of(const Named& named, Mode mode) {
  return [=](const std::vector<at::Tensor>& in) { return named.act(in[0], mode); };
}

// Some twenty operations an element, each within a rounding or two; exp's argument, up to 30 here,
// is rounded before.
TEST(Activation, FusedEqualsReference) {
  for_each_target([] {
    for (const Named& named : kActivations)
      for (const auto dtype : {at::kDouble, at::kFloat})
        for (const int64_t rows : {0, 1, 3, 257})
          for (const int64_t width : {1, 7, 40, 256}) {
            SCOPED_TRACE(testing::Message() << named.name << " " << rows << " x " << width);
            const auto in = std::vector<at::Tensor>{normal({rows, 2 * width}, "x", dtype) * 3};
            const auto fused = run_with_gradients(function_of(named, Mode::fused), in);
            const auto plain = run_with_gradients(function_of(named, Mode::reference), in);
            for (size_t k = 0; k < 2; ++k)
              EXPECT_TRUE(close(fused[k], plain[k], 200 * epsilon(dtype), 1));
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

// The formula, by double's own tanh, and the ends.
TEST(Activation, GeluIsTheFormula) {
  for_each_target([] {
    for (double x = -9; x <= 9; x += 0.37) {
      const double exact =
          x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
      const at::Tensor one = at::tensor({x, 1.0}, at::kDouble).view({1, 2});
      // 1 + tanh cancels on the far left, where the formula itself has an absolute error.
      EXPECT_NEAR(geglu(one, Mode::fused).item<double>(), exact, 2e-15);
      EXPECT_NEAR(gelu(one, Mode::fused)[0][0].item<double>(), exact, 2e-15);
    }
    const float inf = std::numeric_limits<float>::infinity();
    const at::Tensor y =
        gelu(at::tensor({-1e30f, 1e30f, inf, std::nanf("")}).view({1, 4}), Mode::fused);
    EXPECT_EQ(y[0][0].item<float>(), 0);
    EXPECT_EQ(y[0][1].item<float>(), 1e30f);
    EXPECT_EQ(y[0][2].item<float>(), inf);
    EXPECT_TRUE(std::isnan(y[0][3].item<float>()));
  });
}

TEST(Activation, GradientsAreThoseOfDifferences) {
  for (const Named& named : kActivations)
    for (const Mode mode : {Mode::fused, Mode::reference})
      EXPECT_TRUE(
          gradients_are_right(function_of(named, mode), {normal({3, 14}, "x", at::kDouble)}));
}

TEST(Activation, RefusesWhatItCannotRead) {
  EXPECT_THROW(swiglu(at::zeros({3, 5}), Mode::fused), InternalError);
  EXPECT_THROW(geglu(at::zeros({3, 5}), Mode::fused), InternalError);
  EXPECT_THROW(gelu(at::zeros({4, 3}).t(), Mode::fused), InternalError);
  EXPECT_THROW(swiglu(at::zeros({4, 3}).t(), Mode::fused), InternalError);
}

}  // namespace
}  // namespace trireme::kernel
