#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <cmath>

#include "base/random.h"
#include "kernel/test_support.h"

namespace trireme::kernel {

at::Tensor normal(at::IntArrayRef sizes, const std::string& name, at::ScalarType dtype) {
  const at::Tensor x = at::empty(sizes, at::kDouble);
  const RandomStream stream(1, name);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.mutable_data_ptr<double>()[i] = stream.normal(static_cast<uint64_t>(i));
  return x.to(dtype);
}

at::Tensor leaf(const at::Tensor& values) {
  return values.detach().clone().set_requires_grad(true);
}

testing::AssertionResult close(const at::Tensor& a, const at::Tensor& b, double tolerance,
                               double floor) {
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes())
    return testing::AssertionFailure() << "sizes differ or a tensor is missing";
  if (a.numel() == 0) return testing::AssertionSuccess();
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  const double difference = (x - y).abs().max().item<double>();
  const double scale = std::max(y.abs().max().item<double>(), floor);
  if (difference <= tolerance * scale) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "they differ by " << difference << ", the largest is "
                                     << scale << ": " << difference / scale << " > " << tolerance;
}

std::vector<at::Tensor> run_with_gradients(const Differentiable& f,
                                           const std::vector<at::Tensor>& inputs) {
  std::vector<at::Tensor> leaves, results;
  for (const at::Tensor& input : inputs) leaves.push_back(leaf(input));
  const at::Tensor out = f(leaves);
  results.push_back(out.detach());
  (out * normal(out.sizes(), "weights of the sum", out.scalar_type())).sum().backward();
  for (const at::Tensor& x : leaves)
    results.push_back(x.grad().defined() ? x.grad() : at::zeros_like(x));
  return results;
}

// With step h = 1e-5 the difference quotient is off by h^2 times a third derivative and by rounding
// over h: both about 1e-10 for values of order one. 1e-7 leaves room for sums.
testing::AssertionResult gradients_are_right(const Differentiable& f,
                                             const std::vector<at::Tensor>& inputs) {
  const double h = 1e-5, tolerance = 1e-7;
  const std::vector<at::Tensor> results = run_with_gradients(f, inputs);
  const at::NoGradGuard no_grad;
  const auto value = [&](const std::vector<at::Tensor>& at) {
    const at::Tensor out = f(at);
    return (out * normal(out.sizes(), "weights of the sum", at::kDouble)).sum().item<double>();
  };
  for (size_t k = 0; k < inputs.size(); ++k) {
    const int64_t step = std::max<int64_t>(1, inputs[k].numel() / 40);
    for (int64_t i = 0; i < inputs[k].numel(); i += step) {
      std::vector<at::Tensor> moved = inputs;
      moved[k] = inputs[k].clone();
      double* x = moved[k].mutable_data_ptr<double>() + i;
      const double before = *x;
      *x = before + h;
      const double above = value(moved);
      *x = before - h;
      const double numerical = (above - value(moved)) / (2 * h);
      const double ours = results[k + 1].contiguous().const_data_ptr<double>()[i];
      if (!(std::abs(ours - numerical) <= tolerance * std::max(1.0, std::abs(numerical))))
        return testing::AssertionFailure() << "input " << k << ", element " << i << ": gradient "
                                           << ours << ", by differences " << numerical;
    }
  }
  return testing::AssertionSuccess();
}

void expect_accumulation_in_place(size_t k, const Differentiable& f,
                                  const std::vector<at::Tensor>& inputs) {
  const at::Tensor expected = run_with_gradients(f, inputs)[k + 1];
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& input : inputs) leaves.push_back(leaf(input));
  const at::Tensor flat = at::zeros({expected.numel() + 2}, expected.options());
  leaves[k].mutable_grad() = flat.narrow(0, 1, expected.numel()).view(expected.sizes());
  for (int times = 1; times <= 2; ++times) {
    const at::Tensor out = f(leaves);
    (out * normal(out.sizes(), "weights of the sum", out.scalar_type())).sum().backward();
    // One more sum of a few terms than `expected` has.
    EXPECT_TRUE(close(flat.narrow(0, 1, expected.numel()).view(expected.sizes()), expected * times,
                      20 * epsilon(expected.scalar_type())));
  }
  EXPECT_EQ(flat[0].item<double>(), 0);
  EXPECT_EQ(flat[-1].item<double>(), 0);
  EXPECT_EQ(leaves[k].grad().storage().data(), flat.storage().data());
}

void for_each_target(const std::function<void()>& body) {
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t rest = supported & HWY_TARGETS; rest != 0; rest &= rest - 1) {
    const int64_t target = rest & -rest;
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

namespace {

// As everywhere below the trainer's lanes.
struct OneThread : testing::Environment {
  void SetUp() override { at::set_num_threads(1); }
};
const auto* const one_thread = testing::AddGlobalTestEnvironment(new OneThread);

TEST(TestSupport, SeesAWrongGradient) {
  const at::Tensor x = normal({3, 4}, "x", at::kDouble);
  EXPECT_TRUE(gradients_are_right([](const auto& in) { return in[0].square(); }, {x}));
  EXPECT_FALSE(gradients_are_right([](const auto& in) { return in[0] * in[0].detach(); }, {x}));
}

TEST(TestSupport, SeesADifferenceAndANan) {
  const at::Tensor x = at::ones({2});
  EXPECT_TRUE(close(x, x, 0));
  EXPECT_FALSE(close(x, x + 1e-6, 1e-7));
  EXPECT_FALSE(close(x * std::nan(""), x, 1));
}

TEST(TestSupport, RunsOnMoreThanOneInstructionSet) {
  int times = 0;
  for_each_target([&] { ++times; });
  EXPECT_GE(times, 2) << "only the baseline is compiled or supported";
}

}  // namespace
}  // namespace trireme::kernel
