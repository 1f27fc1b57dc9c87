#include "kernel/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight) {
    ctx->save_for_backward({x, weight});
    return at::mm(x, weight.t());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor& dy = grads[0];
    if (!dy.defined()) return {at::Tensor(), at::Tensor()};
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    at::Tensor dx, dw;
    if (ctx->needs_input_grad(0)) dx = at::mm(dy, weight);
    if (ctx->needs_input_grad(1)) {
      if (has_grad_to_add_to(weight)) grad_to_add_to("linear", weight).addmm_(dy.t(), x);
      else dw = at::mm(dy.t(), x);
    }
    return {dx, dw};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, Mode mode) {
  require_shape("linear", "weight", weight, {-1, -1});
  require_shape("linear", "x", x, {-1, weight.size(1)});
  if (mode == Mode::reference) return at::matmul(x, weight.t());
  require_fused("linear", "x", x, x);
  require_fused("linear", "weight", weight, x);
  return Linear::apply(x, weight);
}

}  // namespace trireme::kernel
