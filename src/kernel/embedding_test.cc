#include "kernel/embedding.h"

#include "base/error.h"
#include "kernel/test_support.h"

namespace trireme::kernel {
namespace {

const at::Tensor& ids() {
  static const at::Tensor ids =
      at::tensor({3, 0, 3, 4, 3, 1}, at::kLong);  // repeated, row 2 absent
  return ids;
}

Differentiable embedding_of(Mode mode) {
  return [=](const std::vector<at::Tensor>& in) { return embedding(ids(), in[0], mode); };
}

TEST(Embedding, FusedEqualsReferenceToTheBit) {
  for_each_target([] {
    for (const auto dtype : {at::kDouble, at::kFloat})
      for (const int64_t width : {1, 7, 40, 256}) {
        const std::vector<at::Tensor> in{normal({5, width}, "weight", dtype)};
        const auto fused = run_with_gradients(embedding_of(Mode::fused), in);
        const auto plain = run_with_gradients(embedding_of(Mode::reference), in);
        EXPECT_TRUE(at::equal(fused[0], plain[0]));
        EXPECT_TRUE(at::equal(fused[1], plain[1]));  // both add in the order of ids
      }
  });
}

TEST(Embedding, AScaleMultipliesBothWays) {
  for_each_target([] {
    for (const Mode mode : {Mode::fused, Mode::reference}) {
      const auto scaled = [=](const std::vector<at::Tensor>& in) {
        return embedding(ids(), in[0], mode, 3);
      };
      const std::vector<at::Tensor> in{normal({5, 7}, "weight", at::kDouble)};
      const auto once = run_with_gradients(embedding_of(mode), in);
      const auto thrice = run_with_gradients(scaled, in);
      for (size_t k = 0; k < 2; ++k)  // 3x is rounded; so is each addition
        EXPECT_TRUE(close(thrice[k], 3 * once[k], 4 * epsilon(at::kDouble)));
    }
  });
}

TEST(Embedding, AddsTheWeightsGradientInPlace) {
  for (const Mode mode : {Mode::fused, Mode::reference})
    expect_accumulation_in_place(0, embedding_of(mode), {normal({5, 7}, "weight", at::kDouble)});
}

TEST(Embedding, TakesNoIds) {
  const at::Tensor weight = leaf(at::ones({5, 3}));
  const at::Tensor out = embedding(at::empty({0}, at::kLong), weight, Mode::fused);
  EXPECT_EQ(out.sizes(), (at::IntArrayRef{0, 3}));
  out.sum().backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::zeros({5, 3})));
}

TEST(Embedding, RefusesAnIdOutsideTheTable) {
  for (const Mode mode : {Mode::fused, Mode::reference})
    EXPECT_EQ(message_of<InputError>(
                  [&] { embedding(at::tensor({0, 5}, at::kLong), at::ones({5, 3}), mode); }),
              "embedding: id 5 at place 1 is outside the table of 5 rows");
  EXPECT_THROW(embedding(at::tensor({-1}, at::kLong), at::ones({5, 3}), Mode::fused), InputError);
  EXPECT_THROW(embedding(at::tensor({1}, at::kInt), at::ones({5, 3}), Mode::fused), InternalError);
}

}  // namespace
}  // namespace trireme::kernel
