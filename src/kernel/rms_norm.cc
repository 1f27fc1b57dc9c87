#include "kernel/rms_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernel/simd/rms_norm.h"
#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

std::pair<at::Tensor, at::Tensor> add_rms_norm_reference(const at::Tensor& residual,
                                                         const std::optional<at::Tensor>& delta,
                                                         const at::Tensor& weight, double eps) {
  const at::Tensor r = delta ? residual + *delta : residual;
  const at::Tensor y = r * r.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt() * weight;
  return {r, y};
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

template <class T>
const T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& residual,
                               const std::optional<at::Tensor>& delta, const at::Tensor& weight,
                               double eps) {
    const int64_t rows = residual.size(0), width = residual.size(1);
    const at::Tensor r = delta ? at::empty_like(residual) : residual;
    const at::Tensor y = at::empty_like(residual);
    const at::Tensor rstd = at::empty({rows}, residual.options());
    dispatch_float_double(residual, [&]<class T>(T) {
      simd::rms_norm_loops<T>().forward(
          rows, width, residual.const_data_ptr<T>(), data_or_null<T>(delta.value_or(at::Tensor())),
          weight.const_data_ptr<T>(), eps, delta ? r.mutable_data_ptr<T>() : nullptr,
          y.mutable_data_ptr<T>(), rstd.mutable_data_ptr<T>());
    });
    ctx->save_for_backward({r, rstd, weight});
    ctx->saved_data["has_delta"] = delta.has_value();
    ctx->set_materialize_grads(false);
    return {r, y};
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor &d_r = grads[0], &d_y = grads[1];
    // An absent input must not be given a gradient.
    const auto for_delta = [&](const at::Tensor& dx) {
      return ctx->saved_data["has_delta"].toBool() ? dx : at::Tensor();
    };
    if (!d_y.defined()) return {d_r, for_delta(d_r), at::Tensor(), at::Tensor()};
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &r = saved[0], &rstd = saved[1], &weight = saved[2];
    at::Tensor d_weight, returned;
    if (weight.requires_grad()) {  // needs_input_grad() does not count an absent delta
      if (has_grad_to_add_to(weight)) d_weight = grad_to_add_to("add_rms_norm", weight);
      else d_weight = returned = at::zeros_like(weight);
    }
    const at::Tensor dy = d_y.contiguous(), dr = d_r.defined() ? d_r.contiguous() : d_r;
    const at::Tensor dx = at::empty_like(r);
    dispatch_float_double(r, [&]<class T>(T) {
      simd::rms_norm_loops<T>().backward(
          r.size(0), r.size(1), r.const_data_ptr<T>(), rstd.const_data_ptr<T>(),
          weight.const_data_ptr<T>(), dy.const_data_ptr<T>(), data_or_null<T>(dr),
          dx.mutable_data_ptr<T>(), d_weight.defined() ? d_weight.mutable_data_ptr<T>() : nullptr);
    });
    return {dx, for_delta(dx), returned, at::Tensor()};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& residual,
                                               const std::optional<at::Tensor>& delta,
                                               const at::Tensor& weight, double eps, Mode mode) {
  require_shape("add_rms_norm", "residual", residual, {-1, -1});
  if (delta) require_shape("add_rms_norm", "delta", *delta, residual.sizes());
  require_shape("add_rms_norm", "weight", weight, {residual.size(1)});
  if (mode == Mode::reference) return add_rms_norm_reference(residual, delta, weight, eps);
  require_fused("add_rms_norm", "residual", residual, residual);
  if (delta) require_fused("add_rms_norm", "delta", *delta, residual);
  require_fused("add_rms_norm", "weight", weight, residual);
  const variable_list out = AddRmsNorm::apply(residual, delta, weight, eps);
  return {out[0], out[1]};
}

}  // namespace trireme::kernel
