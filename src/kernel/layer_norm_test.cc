#include "kernel/layer_norm.h"

#include <cmath>

#include "base/error.h"
#include "kernel/test_support.h"

namespace trireme::kernel {
namespace {

constexpr double kEps = 0.1;  // large, so that two values close to each other are not blown up

Differentiable norm_of(Mode mode, bool with_delta) {
  return [=](const std::vector<at::Tensor>& in) {
    const auto delta = with_delta ? std::optional(in[3]) : std::nullopt;
    const auto [r, y] = add_layer_norm(in[0], delta, in[1], in[2], kEps, mode);
    return at::cat({r, y}, 1);  // gradients come from both
  };
}

// Rows far from zero: a variance of squares less the mean's square would cancel.
std::vector<at::Tensor> make_inputs(int64_t rows, int64_t width, bool with_delta,
                                    at::ScalarType dtype) {
  std::vector<at::Tensor> in{normal({rows, width}, "residual", dtype) + 20,
                             normal({width}, "weight", dtype), normal({width}, "bias", dtype)};
  if (with_delta) in.push_back(normal({rows, width}, "delta", dtype));
  return in;
}

// Sums of up to 257 terms. The mean of 20 is known to 20 roundings, which the row's scale of one
// keeps as they are.
TEST(AddLayerNorm, FusedEqualsReference) {
  for_each_target([] {
    for (const auto dtype : {at::kDouble, at::kFloat})
      for (const int64_t rows : {0, 1, 3, 257})
        for (const int64_t width : {2, 7, 40, 256})
          for (const bool with_delta : {false, true}) {
            SCOPED_TRACE(testing::Message() << dtype << " " << rows << " x " << width);
            const auto in = make_inputs(rows, width, with_delta, dtype);
            const auto fused = run_with_gradients(norm_of(Mode::fused, with_delta), in);
            const auto plain = run_with_gradients(norm_of(Mode::reference, with_delta), in);
            for (size_t k = 0; k < fused.size(); ++k)
              EXPECT_TRUE(close(fused[k], plain[k], 1000 * epsilon(dtype), 1)) << "result " << k;
          }
  });
}

TEST(AddLayerNorm, IsTheFormula) {
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    const at::Tensor x = at::tensor({1.0, 2.0, 3.0, 4.0}, at::kDouble).view({1, 4});
    const at::Tensor w = at::tensor({1.0, 1.0, 1.0, 3.0}, at::kDouble);
    const at::Tensor b = at::tensor({0.0, 0.0, 0.0, 5.0}, at::kDouble);
    const auto [r, y] = add_layer_norm(x, x, w, b, kEps, mode);  // mean 5, variance 5
    EXPECT_TRUE(at::equal(r, 2 * x));
    EXPECT_NEAR(y[0][0].item<double>(), -3 / std::sqrt(5 + kEps), 1e-14);
    EXPECT_NEAR(y[0][3].item<double>(), 3 * 3 / std::sqrt(5 + kEps) + 5, 1e-14);
  }
}

TEST(AddLayerNorm, GradientsAreThoseOfDifferences) {
  for (const Mode mode : {Mode::fused, Mode::reference})
    for (const bool with_delta : {false, true})
      EXPECT_TRUE(gradients_are_right(norm_of(mode, with_delta),
                                      make_inputs(3, 7, with_delta, at::kDouble)));
}

TEST(AddLayerNorm, AddsTheWeightsGradientsInPlace) {
  for (const Mode mode : {Mode::fused, Mode::reference})
    for (const size_t k : {1, 2})
      expect_accumulation_in_place(k, norm_of(mode, true), make_inputs(9, 12, true, at::kDouble));
}

TEST(AddLayerNorm, NanStaysInItsRow) {
  for_each_target([] {
    const at::Tensor x = normal({3, 9}, "x", at::kFloat), w = at::ones({9});
    x[1][8] = std::nan("");
    const at::Tensor y = add_layer_norm(x, std::nullopt, w, w, kEps, Mode::fused).second;
    EXPECT_TRUE(y[1].isnan().all().item<bool>());
    EXPECT_TRUE(y[0].isfinite().all().item<bool>() && y[2].isfinite().all().item<bool>());
  });
}

TEST(AddLayerNorm, RefusesWhatItCannotRead) {
  const at::Tensor x = at::zeros({4, 4}), w = at::ones({4});
  EXPECT_THROW(add_layer_norm(x, std::nullopt, w, at::ones({3}), kEps, Mode::fused), InternalError);
  EXPECT_THROW(add_layer_norm(x, std::nullopt, w, w.to(at::kDouble), kEps, Mode::fused),
               InternalError);
}

}  // namespace
}  // namespace trireme::kernel
