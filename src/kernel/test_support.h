// What the tests of this folder share: tensors that are functions of a name, errors relative to the
// largest element, numerical gradients, and running once per instruction set.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "kernel/simd/targets.h"

#include <hwy/highway.h>

namespace trireme::kernel {

// Rounding of one operation; tolerances are multiples of it.
inline double epsilon(at::ScalarType dtype) { return dtype == at::kFloat ? 6e-8 : 1.1e-16; }

// N(0, 1), the same for the same name.
at::Tensor normal(at::IntArrayRef sizes, const std::string& name, at::ScalarType dtype);

// A leaf with these values.
at::Tensor leaf(const at::Tensor& values);

// max|a - b| <= tolerance * max(max|b|, floor), and neither holds a NaN. `floor` is for results
// that cancel to nothing.
testing::AssertionResult close(const at::Tensor& a, const at::Tensor& b, double tolerance,
                               double floor = 1e-30);

using Differentiable = std::function<at::Tensor(const std::vector<at::Tensor>&)>;

// Runs f on leaves with the values of `inputs`, sums its output with fixed random weights, and
// returns {output, gradient of each input}.
std::vector<at::Tensor> run_with_gradients(const Differentiable& f,
                                           const std::vector<at::Tensor>& inputs);

// Compares the gradients of f at `inputs` (double) with central differences, at up to 40 places of
// each input.
testing::AssertionResult gradients_are_right(const Differentiable& f,
                                             const std::vector<at::Tensor>& inputs);

// Weights' rule of mode.h for inputs[k]: with grad() preset to a view of a flat buffer, two
// backward passes leave twice the gradient there, and grad() is still that view.
void expect_accumulation_in_place(size_t k, const Differentiable& f,
                                  const std::vector<at::Tensor>& inputs);

// What the E that f throws says.
template <class E, class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const E& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Calls body() under each instruction set that the loops were compiled for and this CPU has.
void for_each_target(const std::function<void()>& body);

}  // namespace trireme::kernel
