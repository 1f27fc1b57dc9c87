#include "fabric/reduce.h"

#include <gtest/gtest.h>

#include <limits>

#include "fabric/dtype.h"
#include "fabric/test_values.h"

namespace trireme {
namespace {

const std::byte* bytes(const at::Tensor& x) {
  return static_cast<const std::byte*>(x.const_data_ptr());
}
std::byte* mutable_bytes(const at::Tensor& x) {
  return static_cast<std::byte*>(x.mutable_data_ptr());
}

at::Tensor sum(const std::vector<at::Tensor>& tensors, at::ScalarType out) {
  std::vector<const std::byte*> sources;
  for (const at::Tensor& tensor : tensors) sources.push_back(bytes(tensor));
  const at::Tensor result = at::empty({tensors[0].numel()}, out);
  sum_in_order_to(dtype_of(tensors[0].scalar_type()), sources, dtype_of(out), mutable_bytes(result),
                  result.numel(), false);
  return result;
}

// equal_nan in bits would ask for one NaN; sums of finite values have none.
TEST(SumInOrder, HasTheBitsOfTheDefinition) {
  for (at::ScalarType type : kTypes)
    for (int64_t numel : kNumels)
      for (size_t count : {1, 2, 5}) {
        std::vector<at::Tensor> tensors;
        for (size_t i = 0; i < count; ++i)
          tensors.push_back(
              rough_values(static_cast<int>(i), numel, at::kDouble).mul(100).to(type));
        EXPECT_TRUE(at::equal(sum(tensors, type), naive_sum(tensors, type)))
            << type << " " << numel << " " << count;
        if (type == at::kBFloat16 || type == at::kHalf) {
          EXPECT_TRUE(at::equal(sum(tensors, at::kFloat), naive_sum(tensors, at::kFloat)))
              << type << " " << numel;
        }
      }
}

TEST(SumInOrder, AccumulatesIntoWhatIsThere) {
  for (at::ScalarType out : {at::kBFloat16, at::kFloat}) {
    const std::vector<at::Tensor> tensors = {rough_values(0, 1000, at::kBFloat16),
                                             rough_values(1, 1000, at::kBFloat16)};
    const at::Tensor there = rough_values(2, 1000, out);
    const at::Tensor expected = (there.to(at::kFloat) + naive_sum(tensors, at::kFloat)).to(out);
    const std::vector<const std::byte*> sources = {bytes(tensors[0]), bytes(tensors[1])};
    sum_in_order_to(DType::bfloat16, sources, dtype_of(out), mutable_bytes(there), 1000, true);
    EXPECT_TRUE(at::equal(there, expected)) << out;
  }
}

// Every pattern of 16 bits as the upper half of an fp32, with a lower half at, above and below the
// tie.
TEST(SumInOrder, RoundsToBf16AsLibtorchDoes) {
  std::vector<at::Tensor> halves;
  const at::Tensor upper = at::arange(65536, at::kInt).bitwise_left_shift(16);
  for (int lower : {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff}) {
    const at::Tensor x = upper.bitwise_or(lower).view(at::kFloat);
    // x = high + rest exactly, high being a bf16 by truncation: their fp32 sum is x again.
    const at::Tensor high = upper.view(at::kFloat).to(at::kBFloat16);
    const at::Tensor rest = x - upper.view(at::kFloat);
    const at::Tensor low = rest.to(at::kBFloat16);
    const at::Tensor total = high.to(at::kFloat) + low.to(at::kFloat);
    const at::Tensor ours = sum({high, low}, at::kBFloat16), theirs = total.to(at::kBFloat16);
    EXPECT_TRUE(at::equal(ours.isnan(), theirs.isnan()));
    EXPECT_TRUE(at::equal(ours.nan_to_num(0), theirs.nan_to_num(0))) << lower;
    EXPECT_TRUE(at::equal(ours.signbit().masked_select(ours.isnan().logical_not()),
                          theirs.signbit().masked_select(ours.isnan().logical_not())));
  }
}

TEST(MaxInOrder, TakesTheLargestAndKeepsNaN) {
  const double nan = std::numeric_limits<double>::quiet_NaN(),
               inf = std::numeric_limits<double>::infinity();
  for (at::ScalarType type : kTypes) {
    const at::Tensor a = at::tensor({-3.0, 2.0, -1.0}, at::kDouble).to(type);
    const at::Tensor b = at::tensor({-4.0, 5.0, -1.0}, at::kDouble).to(type),
                     out = at::zeros({3}, type);
    const std::vector<const std::byte*> sources = {bytes(a), bytes(b)};
    const std::vector<std::byte*> destinations = {mutable_bytes(out)};
    max_in_order(dtype_of(type), sources, destinations, 3);
    EXPECT_TRUE(at::equal(out, at::tensor({-3.0, 5.0, -1.0}, at::kDouble).to(type))) << type;
  }
  for (at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const at::Tensor a = at::tensor({nan, 1.0, inf, -inf}, at::kDouble).to(type);
    const at::Tensor b = at::tensor({1.0, nan, 1.0, 2.0}, at::kDouble).to(type),
                     out = at::zeros({4}, type);
    const std::vector<const std::byte*> sources = {bytes(a), bytes(b)};
    const std::vector<std::byte*> destinations = {mutable_bytes(out)};
    max_in_order(dtype_of(type), sources, destinations, 4);
    EXPECT_TRUE(at::allclose(out.to(at::kDouble), at::tensor({nan, nan, inf, 2.0}, at::kDouble), 0,
                             0, true))
        << type;
  }
}

}  // namespace
}  // namespace trireme
