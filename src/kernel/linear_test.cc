#include "kernel/linear.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/error.h"
#include "kernel/test_support.h"

namespace trireme::kernel {
namespace {

Differentiable linear_of(Mode mode) {
  return [=](const std::vector<at::Tensor>& in) { return linear(in[0], in[1], mode); };
}

std::vector<at::Tensor> make_inputs(int64_t rows, int64_t in, int64_t out, at::ScalarType dtype) {
  return {normal({rows, in}, "x", dtype), normal({out, in}, "weight", dtype)};
}

Differentiable biased_of(Mode mode, WeightLayout layout) {
  return
      [=](const std::vector<at::Tensor>& in) { return linear(in[0], in[1], mode, in[2], layout); };
}

std::vector<at::Tensor> make_biased(int64_t rows, int64_t in, int64_t out, WeightLayout layout,
                                    at::ScalarType dtype) {
  std::vector<at::Tensor> inputs = make_inputs(rows, in, out, dtype);
  if (layout == WeightLayout::in_out) inputs[1] = inputs[1].t().contiguous();
  inputs.push_back(normal({out}, "bias", dtype));
  return inputs;
}

constexpr WeightLayout kLayouts[] = {WeightLayout::out_in, WeightLayout::in_out};

TEST(Linear, BiasAndBothLayouts) {
  for_each_target([] {
    for (const WeightLayout layout : kLayouts)
      for (const auto dtype : {at::kDouble, at::kFloat})
        for (const int64_t rows : {0, 1, 3, 257})
          for (const int64_t width : {1, 7, 40}) {
            const auto in = make_biased(rows, width, 2 * width + 1, layout, dtype);
            const auto fused = run_with_gradients(biased_of(Mode::fused, layout), in);
            const auto plain = run_with_gradients(biased_of(Mode::reference, layout), in);
            for (size_t k = 0; k < 4; ++k)
              EXPECT_TRUE(close(fused[k], plain[k], 50 * epsilon(dtype), 1));
          }
  });
  // 1 * 2 + 3 * 4 + 10, and the weight read the other way round.
  const at::Tensor x = at::tensor({1.0, 3.0}).view({1, 2}), b = at::tensor({10.0, 20.0});
  const at::Tensor w = at::tensor({2.0, 4.0, 5.0, 6.0}).view({2, 2});
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    EXPECT_EQ(linear(x, w, mode, b)[0][0].item<double>(), 24);
    EXPECT_EQ(linear(x, w, mode, b, WeightLayout::in_out)[0][0].item<double>(), 27);
  }
}

TEST(Linear, GradientsWithBiasAreThoseOfDifferences) {
  for (const WeightLayout layout : kLayouts)
    EXPECT_TRUE(gradients_are_right(biased_of(Mode::fused, layout),
                                    make_biased(3, 5, 4, layout, at::kDouble)));
}

TEST(Linear, AddsTheBiassGradientInPlace) {
  for (const Mode mode : {Mode::fused, Mode::reference})
    for (const WeightLayout layout : kLayouts)
      for (const size_t k : {1, 2})
        expect_accumulation_in_place(k, biased_of(mode, layout),
                                     make_biased(9, 12, 5, layout, at::kDouble));
}

// x = 2 z, which nobody keeps: the same bits as with x kept, and x is gone once forward is done.
TEST(Linear, MakesAnOperandAgain) {
  for (const bool again : {false, true}) {
    const at::Tensor z = leaf(normal({9, 12}, "z", at::kFloat));
    const at::Tensor weight = leaf(normal({5, 12}, "weight", at::kFloat));
    int made = 0;
    const auto make = [&](const std::vector<at::Tensor>& from) {
      EXPECT_FALSE(at::GradMode::is_enabled());
      ++made;
      return 2 * from[0];
    };
    at::Tensor x = 2 * z;
    const at::Tensor y = linear(x, weight, Mode::fused, {}, WeightLayout::out_in,
                                again ? Remake{{z}, make} : Remake{});
    const c10::weak_intrusive_ptr<c10::StorageImpl> kept(x.storage().getWeakStorageImpl());
    x.reset();
    EXPECT_EQ(kept.expired(), again);
    y.square().sum().backward();
    EXPECT_EQ(made, again ? 1 : 0);
    const at::Tensor dy = 2 * y.detach();
    EXPECT_TRUE(close(weight.grad(), dy.t().mm(2 * z.detach()), 20 * epsilon(at::kFloat)));
    EXPECT_TRUE(close(z.grad(), 2 * dy.mm(weight.detach()), 20 * epsilon(at::kFloat)));
  }
}

// The same GEMMs in both forms, perhaps in another order: some roundings of sums of 257 terms.
TEST(Linear, FusedEqualsReference) {
  for (const auto dtype : {at::kDouble, at::kFloat})
    for (const int64_t rows : {0, 1, 3, 257})
      for (const int64_t width : {1, 7, 40}) {
        const auto in = make_inputs(rows, width, 2 * width + 1, dtype);
        const auto fused = run_with_gradients(linear_of(Mode::fused), in);
        const auto plain = run_with_gradients(linear_of(Mode::reference), in);
        for (size_t k = 0; k < 3; ++k)
          EXPECT_TRUE(close(fused[k], plain[k], 50 * epsilon(dtype), 1));
      }
}

// With grad mode off few rows take loops of their own: around their limit of 8, pairs of rows,
// groups of 4 outputs, and vectors. Sums of up to 67 terms: some roundings.
TEST(Linear, FewRowsWithoutGradients) {
  for_each_target([] {
    const at::NoGradGuard no_grad;
    for (const auto dtype : {at::kDouble, at::kFloat})
      for (const int64_t rows : {0, 1, 2, 3, 8, 9})
        for (const int64_t width : {0, 1, 7, 8, 67})
          for (const int64_t out : {0, 1, 4, 7, 33}) {
            const at::Tensor x = normal({rows, width}, "x", dtype);
            const at::Tensor weight = normal({out, width}, "weight", dtype);
            const at::Tensor bias = normal({out}, "bias", dtype);
            for (const at::Tensor& b : {bias, at::Tensor()})
              EXPECT_TRUE(close(linear(x, weight, Mode::fused, b),
                                linear(x, weight, Mode::reference, b), 50 * epsilon(dtype), 1))
                  << rows << " x " << width << " to " << out;
          }
    const at::Tensor x = at::ones({2, 9}), weight = at::ones({5, 9});
    weight[4][8] = std::nan("");
    const at::Tensor y = linear(x, weight, Mode::fused);
    EXPECT_TRUE(y.select(1, 4).isnan().all().item<bool>());
    EXPECT_TRUE(y.narrow(1, 0, 4).eq(9).all().item<bool>());
  });
}

TEST(Linear, GradientsAreThoseOfDifferences) {
  EXPECT_TRUE(gradients_are_right(linear_of(Mode::fused), make_inputs(3, 5, 4, at::kDouble)));
}

TEST(Linear, AddsTheWeightsGradientInPlace) {
  for (const Mode mode : {Mode::fused, Mode::reference})
    expect_accumulation_in_place(1, linear_of(mode), make_inputs(9, 12, 5, at::kDouble));
}

TEST(Linear, LeavesOutGradientsNobodyWants) {
  const at::Tensor x = leaf(at::ones({2, 3})), w = leaf(at::ones({4, 3}));
  linear(x, w.detach(), Mode::fused).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({2, 3}, 4.0f)));
  linear(x.detach(), w, Mode::fused).sum().backward();
  EXPECT_TRUE(at::equal(w.grad(), at::full({4, 3}, 2.0f)));
  EXPECT_TRUE(at::equal(x.grad(), at::full({2, 3}, 4.0f)));
}

TEST(Linear, RefusesAGradientOfAnotherKind) {
  const at::Tensor w = leaf(at::ones({4, 3}));
  w.mutable_grad() = at::zeros({3, 4}).t();
  const at::Tensor y = linear(at::ones({2, 3}), w, Mode::fused);
  EXPECT_EQ(
      message_of<InternalError>([&] { y.sum().backward(); }),
      "linear: weight.grad() must be contiguous, got Float [4, 3] with strides [1, 4] on cpu");
}

}  // namespace
}  // namespace trireme::kernel
