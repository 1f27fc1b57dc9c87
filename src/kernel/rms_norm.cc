#include "kernel/rms_norm.h"

#include <ATen/ATen.h>

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

}  // namespace

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& residual,
                                               const std::optional<at::Tensor>& delta,
                                               const at::Tensor& weight, double eps, Mode mode) {
  require_shape("add_rms_norm", "residual", residual, {-1, -1});
  if (delta) require_shape("add_rms_norm", "delta", *delta, residual.sizes());
  require_shape("add_rms_norm", "weight", weight, {residual.size(1)});
  (void)mode;
  return add_rms_norm_reference(residual, delta, weight, eps);
}

}  // namespace trireme::kernel
