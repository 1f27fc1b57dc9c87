#include "kernel/cross_entropy.h"

#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/error.h"
#include "kernel/test_support.h"

namespace trireme::kernel {
namespace {

// Every third row ignored, the others spread over the vocabulary, its first and last id among them.
at::Tensor make_labels(int64_t rows, int64_t vocabulary) {
  const at::Tensor labels = at::empty({rows}, at::kLong);
  for (int64_t t = 0; t < rows; ++t)
    labels[t] = t % 3 == 2 ? kIgnoredLabel : (t * 7 + vocabulary - 1) % vocabulary;
  return labels;
}

constexpr double kSeed = 0.25;  // exact in both dtypes

// {loss, dx, dw} with the loss's gradient `seed`.
std::vector<at::Tensor> run(const std::vector<at::Tensor>& in, const at::Tensor& labels, Mode mode,
                            double seed = kSeed, double softcap = 0) {
  const at::Tensor x = leaf(in[0]), weight = leaf(in[1]);
  const at::Tensor loss = linear_cross_entropy(x, weight, labels, seed, mode, softcap);
  (loss * seed).backward();
  return {loss.detach(), x.grad(), weight.grad()};
}

// Rows around one chunk of 256, vocabularies around vectors and blocks of 1024. Sums of up to 513
// rows or 2051 logits: a few hundred roundings at most, which mostly cancel in float.
TEST(LinearCrossEntropy, FusedEqualsReference) {
  for_each_target([] {
    for (const auto dtype : {at::kDouble, at::kFloat})
      for (const int64_t rows : {1, 3, 256, 257, 513})
        for (const int64_t vocabulary : {1, 3, 17, 300, 2051}) {
          if (rows > 257 && vocabulary > 300) continue;
          SCOPED_TRACE(testing::Message() << dtype << " " << rows << " rows, " << vocabulary);
          const std::vector<at::Tensor> in{normal({rows, 7}, "x", dtype),
                                           normal({vocabulary, 7}, "weight", dtype)};
          const at::Tensor labels = make_labels(rows, vocabulary);
          const auto fused = run(in, labels, Mode::fused), plain = run(in, labels, Mode::reference);
          for (size_t k = 0; k < 3; ++k)
            EXPECT_TRUE(
                close(fused[k], plain[k], (dtype == at::kDouble ? 300 : 50) * epsilon(dtype), 1))
                << "result " << k;
        }
  });
}

// Logits of 8 and more, under a cap that bends them strongly and one that hardly does.
TEST(LinearCrossEntropy, ASoftCapBendsTheLogits) {
  for_each_target([] {
    for (const auto dtype : {at::kDouble, at::kFloat})
      for (const double softcap : {1.5, 30.0})
        for (const int64_t vocabulary : {3, 17, 300}) {
          const std::vector<at::Tensor> in{3 * normal({259, 7}, "x", dtype),
                                           normal({vocabulary, 7}, "weight", dtype)};
          const at::Tensor labels = make_labels(259, vocabulary);
          const auto fused = run(in, labels, Mode::fused, kSeed, softcap);
          const auto plain = run(in, labels, Mode::reference, kSeed, softcap);
          for (size_t k = 0; k < 3; ++k)
            EXPECT_TRUE(close(fused[k], plain[k], 300 * epsilon(dtype), 1)) << "result " << k;
          const at::NoGradGuard no_grad;
          const at::Tensor sum =
              linear_cross_entropy(in[0], in[1], labels, kSeed, Mode::fused, softcap);
          EXPECT_TRUE(close(sum, plain[0], 300 * epsilon(dtype)));
          const at::Tensor z = linear_logits(in[0], in[1], Mode::fused, softcap);
          const at::Tensor exact = softcap * at::tanh(at::matmul(in[0], in[1].t()) / softcap);
          EXPECT_TRUE(close(z, exact, 100 * epsilon(dtype)));
          EXPECT_TRUE(close(linear_logits(in[0], in[1], Mode::reference, softcap), exact,
                            100 * epsilon(dtype)));
          for (const Mode mode : {Mode::fused, Mode::reference}) {
            const at::Tensor log_probs = linear_log_probs(in[0], in[1], labels, mode, softcap);
            EXPECT_TRUE(close(log_probs.sum(), -plain[0], 300 * epsilon(dtype)));
          }
        }
  });
}

TEST(LinearCrossEntropy, OfEqualLogitsIsTheLogarithmOfTheirNumber) {
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    const auto results = run({at::zeros({4, 2}, at::kDouble), at::ones({5, 2}, at::kDouble)},
                             at::tensor(std::vector<int64_t>{0, 4, kIgnoredLabel, 2}), mode);
    EXPECT_NEAR(results[0].item<double>(), 3 * std::log(5.0), 1e-14);
  }
}

TEST(LinearCrossEntropy, GradientsAreThoseOfDifferences) {
  const at::Tensor labels = make_labels(5, 6);
  EXPECT_TRUE(gradients_are_right(
      [&](const std::vector<at::Tensor>& in) {
        // The checker weighs this one number by a factor that it does not tell us.
        const double factor = normal({}, "weights of the sum", at::kDouble).item<double>();
        return linear_cross_entropy(in[0], in[1], labels, factor, Mode::fused);
      },
      {normal({5, 4}, "x", at::kDouble), normal({6, 4}, "weight", at::kDouble)}));
}

TEST(LinearCrossEntropy, AddsTheWeightsGradientInPlace) {
  const at::Tensor labels = make_labels(300, 20), x = normal({300, 6}, "x", at::kDouble);
  for (const Mode mode : {Mode::fused, Mode::reference}) {
    const at::Tensor weight = leaf(normal({20, 6}, "weight", at::kDouble));
    const auto once = [&] {
      (linear_cross_entropy(x, weight, labels, kSeed, mode) * kSeed).backward();
    };
    once();
    const at::Tensor single = weight.grad().clone();
    const at::Tensor flat = at::zeros({120}, at::kDouble);
    weight.mutable_grad() = flat.view({20, 6});
    once();
    EXPECT_TRUE(close(flat.view({20, 6}), single, 1e-15));
    once();
    EXPECT_TRUE(close(flat.view({20, 6}), 2 * single, 1e-14));
    EXPECT_EQ(weight.grad().data_ptr(), flat.data_ptr());
  }
}

TEST(LinearCrossEntropy, WithoutAValidLabelIsZero) {
  for (const Mode mode : {Mode::fused, Mode::reference})
    for (const int64_t rows : {0, 1, 300}) {
      const auto results =
          run({normal({rows, 4}, "x", at::kFloat), normal({9, 4}, "weight", at::kFloat)},
              at::full({rows}, kIgnoredLabel, at::kLong), mode);
      EXPECT_EQ(results[0].item<double>(), 0);
      EXPECT_TRUE(at::equal(results[1], at::zeros({rows, 4})));
      EXPECT_TRUE(at::equal(results[2], at::zeros({9, 4})));
    }
}

TEST(LinearCrossEntropy, WithoutGradModeTouchesNoGradient) {
  const at::Tensor x = leaf(normal({5, 4}, "x", at::kDouble));
  const at::Tensor weight = leaf(normal({6, 4}, "weight", at::kDouble));
  weight.mutable_grad() = at::zeros({6, 4}, at::kDouble);
  const at::Tensor labels = make_labels(5, 6);
  const at::Tensor recorded = linear_cross_entropy(x, leaf(weight), labels, 1, Mode::fused);
  const at::NoGradGuard no_grad;
  const at::Tensor loss = linear_cross_entropy(x, weight, labels, 1, Mode::fused);
  EXPECT_FALSE(loss.requires_grad());
  EXPECT_TRUE(at::equal(loss, recorded.detach()));
  EXPECT_TRUE(at::equal(weight.grad(), at::zeros({6, 4}, at::kDouble)));
}

TEST(LinearCrossEntropy, FrozenInputsGetNothing) {
  const at::Tensor x = normal({5, 4}, "x", at::kDouble);
  const at::Tensor weight = normal({6, 4}, "weight", at::kDouble), labels = make_labels(5, 6);
  const auto both = run({x, weight}, labels, Mode::fused);
  const at::Tensor only_x = leaf(x), only_weight = leaf(weight);
  (linear_cross_entropy(only_x, weight, labels, kSeed, Mode::fused) * kSeed).backward();
  (linear_cross_entropy(x, only_weight, labels, kSeed, Mode::fused) * kSeed).backward();
  EXPECT_TRUE(at::equal(only_x.grad(), both[1]));
  EXPECT_TRUE(at::equal(only_weight.grad(), both[2]));
}

TEST(LinearCrossEntropy, RefusesAnotherSeedThanTheOneNamed) {
  const at::Tensor x = leaf(at::ones({1, 2}));
  const at::Tensor loss =
      linear_cross_entropy(x, at::ones({3, 2}), at::tensor({1}, at::kLong), 0.5, Mode::fused);
  EXPECT_EQ(message_of<InternalError>([&] { loss.backward(); }),
            "linear_cross_entropy: the gradients are made for a sum that receives 0.5, but it "
            "receives 1");
}

// 1 / 3 is another number in float than in double; the check compares in the sum's dtype.
TEST(LinearCrossEntropy, TakesASeedThatFloatCannotHold) {
  const at::Tensor x = leaf(at::ones({1, 2}));
  (linear_cross_entropy(x, at::ones({3, 2}), at::tensor({1}, at::kLong), 1.0 / 3, Mode::fused) *
   (1.0 / 3))
      .backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(LinearCrossEntropy, NanAndInfinityAreNotHidden) {
  for_each_target([] {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()})
      for (const int64_t place : {0, 9, 32}) {  // of 33 logits: first, middle, tail
        const at::Tensor x = at::ones({2, 1}), weight = normal({33, 1}, "weight", at::kFloat);
        weight[place][0] = bad;
        const auto results = run({x, weight}, at::tensor({1, 2}, at::kLong), Mode::fused);
        EXPECT_FALSE(std::isfinite(results[0].item<float>()));
        EXPECT_TRUE(results[1].isnan().all().item<bool>());
      }
  });
}

TEST(LinearCrossEntropy, HugeLogitsDoNotOverflow) {
  for_each_target([] {
    const auto results = run({at::full({1, 1}, 1e4f), at::tensor({-1.0f, 2.0f, 1.0f}).view({3, 1})},
                             at::tensor({2}, at::kLong), Mode::fused, 1);
    EXPECT_EQ(results[0].item<float>(), 1e4f);
    EXPECT_TRUE(at::equal(results[2], at::tensor({0.0f, 1e4f, -1e4f}).view({3, 1})));
  });
}

TEST(LinearCrossEntropy, RefusesLabelsOutsideTheVocabulary) {
  for (const int64_t label : {-1, 3})
    EXPECT_EQ(message_of<InputError>([&] {
                linear_cross_entropy(at::ones({1, 2}), at::ones({3, 2}),
                                     at::tensor({label}, at::kLong), 1, Mode::fused);
              }),
              concat("linear_cross_entropy: label ", label,
                     " at place 0 is neither -100 nor below the vocabulary of 3"));
  EXPECT_THROW(linear_cross_entropy(at::ones({2, 4}).t(), at::ones({3, 2}),
                                    at::zeros({4}, at::kLong), 1, Mode::fused),
               InternalError);
}

TEST(LinearLogProbs, FusedEqualsReferenceAndTheLoss) {
  for_each_target([] {
    for (const int64_t rows : {0, 1, 300}) {
      const at::Tensor x = normal({rows, 5}, "x", at::kDouble);
      const at::Tensor weight = normal({33, 5}, "weight", at::kDouble);
      const at::Tensor labels = make_labels(rows, 33);
      const at::Tensor fused = linear_log_probs(x, weight, labels, Mode::fused);
      EXPECT_TRUE(close(fused, linear_log_probs(x, weight, labels, Mode::reference), 1e-14, 1));
      const at::Tensor loss = linear_cross_entropy(x, weight, labels, 1, Mode::fused);
      EXPECT_TRUE(close(-fused.sum(), loss, 1e-14, 1));
    }
  });
  EXPECT_THROW(linear_log_probs(leaf(at::ones({1, 1})), at::ones({2, 1}), at::zeros({1}, at::kLong),
                                Mode::fused),
               InternalError);
}

}  // namespace
}  // namespace trireme::kernel
