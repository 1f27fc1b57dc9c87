#include "kernel/rms_norm.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/error.h"
#include "kernel/test_support.h"

namespace trireme::kernel {
namespace {

constexpr double kEps = 1e-5;

Differentiable norm_of(Mode mode, bool with_delta) {
  return [=](const std::vector<at::Tensor>& in) {
    const auto [r, y] = with_delta ? add_rms_norm(in[0], in[2], in[1], kEps, mode)
                                   : add_rms_norm(in[0], std::nullopt, in[1], kEps, mode);
    return at::cat({r, y}, 1);  // gradients come from both
  };
}

std::vector<at::Tensor> make_inputs(int64_t rows, int64_t width, bool with_delta,
                                    at::ScalarType dtype) {
  std::vector<at::Tensor> in{normal({rows, width}, "residual", dtype),
                             normal({width}, "weight", dtype)};
  if (with_delta) in.push_back(normal({rows, width}, "delta", dtype));
  return in;
}

// A row's sum has up to 256 terms, the weight's gradient up to 257: a hundred roundings in double,
// and 50 in float, where they mostly cancel.
TEST(AddRmsNorm, FusedEqualsReference) {
  for_each_target([] {
    for (const auto dtype : {at::kDouble, at::kFloat})
      for (const int64_t rows : {0, 1, 3, 257})
        for (const int64_t width : {1, 7, 40, 256})
          for (const bool with_delta : {false, true}) {
            SCOPED_TRACE(testing::Message() << dtype << " " << rows << " x " << width);
            const auto in = make_inputs(rows, width, with_delta, dtype);
            const auto fused = run_with_gradients(norm_of(Mode::fused, with_delta), in);
            const auto plain = run_with_gradients(norm_of(Mode::reference, with_delta), in);
            for (size_t k = 0; k < fused.size(); ++k)
              EXPECT_TRUE(
                  close(fused[k], plain[k], (dtype == at::kDouble ? 100 : 50) * epsilon(dtype), 1))
                  << "result " << k;
          }
  });
}

TEST(AddRmsNorm, IsTheFormula) {
  // llm.md's value: 1 2 3 4 over sqrt(7.5 + 1e-5).
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    const at::Tensor x = at::tensor({1.0, 2.0, 3.0, 4.0}, at::kDouble).view({1, 4});
    const at::Tensor w = at::tensor({1.0, 1.0, 2.0, 1.0}, at::kDouble);
    const auto [r, y] = add_rms_norm(x, x, w, kEps, mode);
    EXPECT_TRUE(at::equal(r, 2 * x));
    const double expected = 2 * 3 * 2 / std::sqrt(4 * 7.5 + 1e-5);
    EXPECT_NEAR(y[0][2].item<double>(), expected, 1e-15 * 10);
    EXPECT_NEAR(add_rms_norm(x, std::nullopt, at::ones({4}, at::kDouble), kEps, mode)
                    .second[0][0]
                    .item<double>(),
                0.3651481282, 1e-10);
  }
}

TEST(AddRmsNorm, GradientsAreThoseOfDifferences) {
  for (const Mode mode : {Mode::fused, Mode::reference})
    for (const bool with_delta : {false, true})
      EXPECT_TRUE(gradients_are_right(norm_of(mode, with_delta),
                                      make_inputs(3, 7, with_delta, at::kDouble)));
}

// Gemma's: the weight is held less one. Fused and plain, and the same as adding it before.
TEST(AddRmsNorm, AnOffsetIsAddedToTheWeight) {
  for_each_target([] {
    for (const auto dtype : {at::kDouble, at::kFloat}) {
      const auto in = make_inputs(5, 40, true, dtype);
      std::vector<std::vector<at::Tensor>> results;
      for (const Mode mode : {Mode::fused, Mode::reference})
        results.push_back(run_with_gradients(
            [=](const std::vector<at::Tensor>& x) {
              return add_rms_norm(x[0], x[2], x[1], kEps, mode, 1).second;
            },
            in));
      results.push_back(run_with_gradients(
          [=](const std::vector<at::Tensor>& x) {
            return add_rms_norm(x[0], x[2], x[1] + 1, kEps, Mode::reference).second;
          },
          in));
      for (size_t k = 0; k < 4; ++k) {
        EXPECT_TRUE(close(results[0][k], results[2][k], 50 * epsilon(dtype), 1));
        EXPECT_TRUE(close(results[1][k], results[2][k], 50 * epsilon(dtype), 1));
      }
    }
  });
}

Differentiable head_norm_of(Mode mode, const HeadShape& shape, double offset) {
  return [=](const std::vector<at::Tensor>& in) {
    return head_rms_norm(in[0], in[1], in[2], shape, kEps, mode, offset);
  };
}

std::vector<at::Tensor> head_inputs(int64_t rows, const HeadShape& s, at::ScalarType dtype) {
  return {normal({rows, (s.heads + 2 * s.kv_heads) * s.head_dim}, "qkv", dtype),
          normal({s.head_dim}, "query weight", dtype), normal({s.head_dim}, "key weight", dtype)};
}

// As for rows: sums of up to 80 terms, weights' gradients of up to 257 * 4.
TEST(HeadRmsNorm, FusedEqualsReference) {
  for_each_target([] {
    for (const auto dtype : {at::kDouble, at::kFloat})
      for (const int64_t rows : {0, 1, 257})
        for (const HeadShape& shape : {HeadShape{4, 2, 32}, {1, 1, 1}, {3, 1, 10}, {4, 4, 80}})
          for (const double offset : {0.0, 1.0}) {
            const auto in = head_inputs(rows, shape, dtype);
            const auto fused = run_with_gradients(head_norm_of(Mode::fused, shape, offset), in);
            const auto plain = run_with_gradients(head_norm_of(Mode::reference, shape, offset), in);
            for (size_t k = 0; k < fused.size(); ++k)
              EXPECT_TRUE(
                  close(fused[k], plain[k], (dtype == at::kDouble ? 100 : 50) * epsilon(dtype), 1))
                  << "result " << k;
          }
  });
}

TEST(HeadRmsNorm, NormalisesEachHeadAndLeavesValues) {
  const HeadShape shape{2, 1, 2};
  const at::Tensor qkv = at::tensor({3.0, 4.0, 6.0, 8.0, 1.0, 7.0, 5.0, 9.0}).view({1, 8});
  const at::Tensor ones = at::ones({2}, qkv.options());
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    const at::Tensor y = head_rms_norm(qkv, ones, 2 * ones, shape, 0, mode);
    EXPECT_NEAR(y[0][0].item<double>(), 3 / std::sqrt(12.5), 1e-6);
    EXPECT_NEAR(y[0][2].item<double>(), 3 / std::sqrt(12.5), 1e-6);
    EXPECT_NEAR(y[0][5].item<double>(), 2 * 7 / 5.0, 1e-6);
    EXPECT_EQ(y[0][7].item<double>(), 9);
  }
}

TEST(HeadRmsNorm, GradientsAreThoseOfDifferences) {
  const HeadShape shape{4, 2, 3};
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    const auto in = head_inputs(3, shape, at::kDouble);
    EXPECT_TRUE(gradients_are_right(head_norm_of(mode, shape, 1), in));
    for (const size_t k : {1, 2}) expect_accumulation_in_place(k, head_norm_of(mode, shape, 0), in);
  }
}

// Only one of the outputs may be used further on.
TEST(AddRmsNorm, EitherGradientMayBeMissing) {
  for (const int used : {0, 1}) {
    std::vector<std::vector<at::Tensor>> results;
    for (const Mode mode : {Mode::fused, Mode::reference})
      results.push_back(run_with_gradients(
          [&](const auto& in) {
            const auto [r, y] = add_rms_norm(in[0], in[2], in[1], kEps, mode);
            return used == 0 ? r : y;
          },
          make_inputs(5, 7, true, at::kDouble)));
    for (size_t k = 0; k < 4; ++k) EXPECT_TRUE(close(results[0][k], results[1][k], 1e-14, 1));
  }
}

TEST(AddRmsNorm, AddsTheWeightsGradientInPlace) {
  for (const Mode mode : {Mode::fused, Mode::reference})
    expect_accumulation_in_place(1, norm_of(mode, true), make_inputs(9, 12, true, at::kDouble));
}

TEST(AddRmsNorm, LeavesOutGradientsNobodyWants) {
  const auto in = make_inputs(3, 8, true, at::kDouble);
  const at::Tensor x = leaf(in[0]);
  add_rms_norm(x, in[2], in[1], kEps, Mode::fused).second.sum().backward();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(in[1].grad().defined());
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(add_rms_norm(x, in[2], leaf(in[1]), kEps, Mode::fused).second.requires_grad());
}

TEST(AddRmsNorm, NanAndInfinityStayInTheirRow) {
  for_each_target([] {
    const at::Tensor x = normal({3, 9}, "x", at::kFloat), w = at::ones({9});
    x[1][8] = std::nan("");
    const at::Tensor y = add_rms_norm(x, std::nullopt, w, kEps, Mode::fused).second;
    EXPECT_TRUE(y[1].isnan().all().item<bool>());
    EXPECT_TRUE(y[0].isfinite().all().item<bool>() && y[2].isfinite().all().item<bool>());
    x[1][8] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(
        add_rms_norm(x, std::nullopt, w, kEps, Mode::fused).second[1][8].isnan().item<bool>());
  });
}

TEST(AddRmsNorm, RefusesWhatItCannotRead) {
  const at::Tensor x = at::zeros({4, 4}), w = at::ones({4});
  EXPECT_EQ(message_of<InternalError>(
                [&] { add_rms_norm(x.narrow(1, 0, 2), std::nullopt, w, kEps, Mode::fused); }),
            "add_rms_norm: residual must be contiguous, got Float [4, 2] with strides [4, 1] on "
            "cpu");
  EXPECT_EQ(
      message_of<InternalError>([&] { add_rms_norm(x, at::zeros({4, 3}), w, kEps, Mode::fused); }),
      "add_rms_norm: delta must have sizes [4, 4] (-1: any), got Float [4, 3] with strides "
      "[3, 1] on cpu");
  EXPECT_THROW(add_rms_norm(x, std::nullopt, at::ones({3}), kEps, Mode::fused), InternalError);
  EXPECT_THROW(add_rms_norm(x, std::nullopt, w.to(at::kDouble), kEps, Mode::fused), InternalError);
  EXPECT_THROW(add_rms_norm(x.to(at::kBFloat16), std::nullopt, w, kEps, Mode::fused),
               InternalError);
}

}  // namespace
}  // namespace trireme::kernel
