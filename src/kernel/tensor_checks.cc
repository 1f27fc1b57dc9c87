#include "kernel/tensor_checks.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

namespace trireme::kernel {
namespace {

bool fits(at::IntArrayRef sizes, at::IntArrayRef wanted) {
  if (sizes.size() != wanted.size()) return false;
  for (size_t dim = 0; dim < sizes.size(); ++dim)
    if (wanted[dim] >= 0 && sizes[dim] != wanted[dim]) return false;
  return true;
}

}  // namespace

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "no tensor";
  return concat(tensor.scalar_type(), " ", tensor.sizes(), " with strides ", tensor.strides(),
                " on ", tensor.device());
}

void require_shape(const char* op, const char* name, const at::Tensor& tensor,
                   at::IntArrayRef sizes) {
  require(tensor.defined() && fits(tensor.sizes(), sizes), op, ": ", name, " must have sizes ",
          sizes, " (-1: any), got ", describe(tensor));
  require(tensor.is_contiguous(), op, ": ", name, " must be contiguous, got ", describe(tensor));
}

void require_fused(const char* op, const char* name, const at::Tensor& tensor,
                   const at::Tensor& like) {
  const auto dtype = tensor.scalar_type();
  require(tensor.is_cpu() && (dtype == at::kFloat || dtype == at::kDouble), op, ": ", name,
          " must be float or double on a CPU, got ", describe(tensor),
          "\nnext: Mode::reference takes any device and dtype");
  require(dtype == like.scalar_type(), op, ": ", name, " must be ", like.scalar_type(), ", got ",
          describe(tensor));
}

void require_no_grad(const char* op, const at::Tensor& a, const at::Tensor& b) {
  require(!at::GradMode::is_enabled() || !(a.requires_grad() || b.requires_grad()), op,
          ": has no gradient, but an input asks for one\nnext: call it under at::NoGradGuard");
}

bool has_grad_to_add_to(const at::Tensor& weight) {
  return weight.requires_grad() && weight.is_leaf() && weight.grad().defined();
}

WeightGradient::WeightGradient(const char* op, const at::Tensor& weight) {
  if (!weight.requires_grad()) return;
  if (has_grad_to_add_to(weight)) into = grad_to_add_to(op, weight);
  else into = returned = at::zeros_like(weight);
}

at::Tensor& grad_to_add_to(const char* op, const at::Tensor& weight) {
  at::Tensor& grad = weight.mutable_grad();
  require_shape(op, "weight.grad()", grad, weight.sizes());
  require(grad.scalar_type() == weight.scalar_type(), op, ": weight.grad() must be ",
          weight.scalar_type(), ", got ", describe(grad));
  return grad;
}

}  // namespace trireme::kernel
