#include "kernel/layer_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernel/simd/layer_norm.h"
#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

std::pair<at::Tensor, at::Tensor> add_layer_norm_reference(const at::Tensor& residual,
                                                           const std::optional<at::Tensor>& delta,
                                                           const at::Tensor& weight,
                                                           const at::Tensor& bias, double eps) {
  const at::Tensor r = delta ? residual + *delta : residual;
  const at::Tensor centred = r - r.mean(-1, /*keepdim=*/true);
  const at::Tensor rstd = centred.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt();
  return {r, centred * rstd * weight + bias};
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct AddLayerNorm : torch::autograd::Function<AddLayerNorm> {
  static variable_list forward(AutogradContext* ctx, const at::Tensor& residual,
                               const std::optional<at::Tensor>& delta, const at::Tensor& weight,
                               const at::Tensor& bias, double eps) {
    const int64_t rows = residual.size(0), width = residual.size(1);
    const at::Tensor r = delta ? at::empty_like(residual) : residual;
    const at::Tensor y = at::empty_like(residual);
    const at::Tensor mean = at::empty({rows}, residual.options());
    const at::Tensor rstd = at::empty({rows}, residual.options());
    dispatch_float_double(residual, [&]<class T>(T) {
      simd::layer_norm_loops<T>().forward(
          rows, width, residual.const_data_ptr<T>(), data_or_null<T>(delta.value_or(at::Tensor())),
          weight.const_data_ptr<T>(), bias.const_data_ptr<T>(), eps,
          delta ? r.mutable_data_ptr<T>() : nullptr, y.mutable_data_ptr<T>(),
          mean.mutable_data_ptr<T>(), rstd.mutable_data_ptr<T>());
    });
    ctx->save_for_backward({r, mean, rstd, weight, bias});
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
    if (!d_y.defined()) return {d_r, for_delta(d_r), at::Tensor(), at::Tensor(), at::Tensor()};
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &r = saved[0], &mean = saved[1], &rstd = saved[2], &weight = saved[3];
    const WeightGradient d_weight("add_layer_norm", weight), d_bias("add_layer_norm", saved[4]);
    const at::Tensor dy = d_y.contiguous(), dr = d_r.defined() ? d_r.contiguous() : d_r;
    const at::Tensor dx = at::empty_like(r);
    dispatch_float_double(r, [&]<class T>(T) {
      simd::layer_norm_loops<T>().backward(
          r.size(0), r.size(1), r.const_data_ptr<T>(), mean.const_data_ptr<T>(),
          rstd.const_data_ptr<T>(), weight.const_data_ptr<T>(), dy.const_data_ptr<T>(),
          data_or_null<T>(dr), dx.mutable_data_ptr<T>(), d_weight.data<T>(), d_bias.data<T>());
    });
    return {dx, for_delta(dx), d_weight.returned, d_bias.returned, at::Tensor()};
  }
};

}  // namespace

std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& residual,
                                                 const std::optional<at::Tensor>& delta,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double eps, Mode mode) {
  const char* op = "add_layer_norm";
  require_shape(op, "residual", residual, {-1, -1});
  if (delta) require_shape(op, "delta", *delta, residual.sizes());
  require_shape(op, "weight", weight, {residual.size(1)});
  require_shape(op, "bias", bias, {residual.size(1)});
  if (mode == Mode::reference) return add_layer_norm_reference(residual, delta, weight, bias, eps);
  require_fused(op, "residual", residual, residual);
  if (delta) require_fused(op, "delta", *delta, residual);
  require_fused(op, "weight", weight, residual);
  require_fused(op, "bias", bias, residual);
  const variable_list out = AddLayerNorm::apply(residual, delta, weight, bias, eps);
  return {out[0], out[1]};
}

}  // namespace trireme::kernel
