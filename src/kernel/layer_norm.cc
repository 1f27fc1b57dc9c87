#include "kernel/layer_norm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "kernel/differentiable.h"
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

Tensors backward(const BackwardPass& pass) {
  const at::Tensor &d_r = pass.d_out[0], &d_y = pass.d_out[1];
  if (!d_y.defined()) return {d_r, d_r, at::Tensor(), at::Tensor()};
  const at::Tensor &r = pass.saved[0], &mean = pass.saved[1], &rstd = pass.saved[2];
  const at::Tensor& weight = pass.saved[3];
  const WeightGradient d_weight("add_layer_norm", weight), d_bias("add_layer_norm", pass.saved[4]);
  const at::Tensor dy = d_y.contiguous(), dr = d_r.defined() ? d_r.contiguous() : d_r;
  const at::Tensor dx = at::empty_like(r);
  dispatch_float_double(r, [&]<class T>(T) {
    simd::layer_norm_loops<T>().backward(
        r.size(0), r.size(1), r.const_data_ptr<T>(), mean.const_data_ptr<T>(),
        rstd.const_data_ptr<T>(), weight.const_data_ptr<T>(), dy.const_data_ptr<T>(),
        data_or_null<T>(dr), dx.mutable_data_ptr<T>(), d_weight.data<T>(), d_bias.data<T>());
  });
  return {dx, dx, d_weight.returned, d_bias.returned};
}

// `delta` may be undefined.
Tensors add_layer_norm_fused(const at::Tensor& residual, const at::Tensor& delta,
                             const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return differentiable({residual, delta, weight, bias}, [&] {
    const int64_t rows = residual.size(0), width = residual.size(1);
    const at::Tensor r = delta.defined() ? at::empty_like(residual) : residual;
    const at::Tensor y = at::empty_like(residual);
    const at::Tensor mean = at::empty({rows}, residual.options());
    const at::Tensor rstd = at::empty({rows}, residual.options());
    dispatch_float_double(residual, [&]<class T>(T) {
      simd::layer_norm_loops<T>().forward(
          rows, width, residual.const_data_ptr<T>(), data_or_null<T>(delta),
          weight.const_data_ptr<T>(), bias.const_data_ptr<T>(), eps,
          delta.defined() ? r.mutable_data_ptr<T>() : nullptr, y.mutable_data_ptr<T>(),
          mean.mutable_data_ptr<T>(), rstd.mutable_data_ptr<T>());
    });
    return ForwardPass{{r, y}, {r, mean, rstd, weight, bias}, backward};
  });
}

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
  const Tensors out =
      add_layer_norm_fused(residual, delta.value_or(at::Tensor()), weight, bias, eps);
  return {out[0], out[1]};
}

}  // namespace trireme::kernel
