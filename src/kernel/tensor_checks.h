// What the operators of this folder demand of their arguments. A breach is a bug of the caller's:
// InternalError with operator, argument and what it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "base/error.h"

namespace trireme::kernel {

// "Float [3, 4] with strides [4, 1] on cpu".
std::string describe(const at::Tensor& tensor);

template <class... Parts>
void require(bool condition, const Parts&... message) {
  if (!condition) [[unlikely]]
    throw InternalError(concat(message...));
}

// Contiguous, of these sizes (-1: any).
void require_shape(const char* op, const char* name, const at::Tensor& tensor,
                   at::IntArrayRef sizes);

// For fused loops: on a CPU, and float or double, as `like` is.
void require_fused(const char* op, const char* name, const at::Tensor& tensor,
                   const at::Tensor& like);

// For an operator that has no backward.
void require_no_grad(const char* op, const at::Tensor& a, const at::Tensor& b);

// Whether a weight's gradient goes straight into weight.grad() (mode.h, Weights).
bool has_grad_to_add_to(const at::Tensor& weight);

// weight.grad(), checked to be contiguous and of the weight's sizes and dtype.
at::Tensor& grad_to_add_to(const char* op, const at::Tensor& weight);

// Where a backward adds a weight's gradient: into weight.grad(), or into new zeros that it returns.
// Without either if the weight wants none.
struct WeightGradient {
  WeightGradient(const char* op, const at::Tensor& weight);
  template <class T>
  T* data() const {
    return into.defined() ? into.mutable_data_ptr<T>() : nullptr;
  }
  at::Tensor into, returned;
};

template <class T>
const T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

// Calls f with a value of the C++ type of `tensor`'s elements.
template <class F>
auto dispatch_float_double(const at::Tensor& tensor, F&& f) {
  return tensor.scalar_type() == at::kFloat ? f(float{}) : f(double{});
}

}  // namespace trireme::kernel
