#include "kernel/adamw.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

SquareSum sum_of_squares_reference(const at::Tensor& x) {
  return {x.to(at::kDouble).square().sum().item<double>(), at::isfinite(x).all().item<bool>()};
}

void adamw_reference_(at::Tensor& p, const at::Tensor& g, at::Tensor& m, at::Tensor& v,
                      const AdamWStep& step) {
  const at::Tensor scaled = g * step.gradient_scale;
  m.mul_(step.beta1).add_(scaled, 1 - step.beta1);
  v.mul_(step.beta2).addcmul_(scaled, scaled, 1 - step.beta2);
  const at::Tensor root = (v / (1 - std::pow(step.beta2, step.t))).sqrt_().add_(step.eps);
  p.mul_(1 - step.lr * step.weight_decay)
      .addcdiv_(m, root, -step.lr / (1 - std::pow(step.beta1, step.t)));
}

}  // namespace

void adamw_(at::Tensor& p, const at::Tensor& g, at::Tensor& m, at::Tensor& v, const AdamWStep& step,
            Mode mode) {
  const at::NoGradGuard no_grad;
  require_shape("adamw_", "p", p, {-1});
  require_shape("adamw_", "g", g, p.sizes());
  require_shape("adamw_", "m", m, p.sizes());
  require_shape("adamw_", "v", v, p.sizes());
  require(step.t >= 1, "adamw_: t counts from 1, got ", step.t);
  (void)mode;
  adamw_reference_(p, g, m, v, step);
}

SquareSum sum_of_squares(const at::Tensor& x, Mode mode) {
  const at::NoGradGuard no_grad;
  require_shape("sum_of_squares", "x", x, {-1});
  (void)mode;
  return sum_of_squares_reference(x);
}

SquareSum add_up_(at::Tensor& into, std::span<const at::Tensor> others, Mode mode) {
  const at::NoGradGuard no_grad;
  require_shape("add_up_", "into", into, {-1});
  for (const at::Tensor& other : others) require_shape("add_up_", "other", other, into.sizes());
  (void)mode;
  for (const at::Tensor& other : others) into.add_(other);
  return sum_of_squares_reference(into);
}

}  // namespace trireme::kernel
