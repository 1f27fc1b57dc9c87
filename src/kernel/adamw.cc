#include "kernel/adamw.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <vector>

#include "kernel/simd/flat.h"
#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

SquareSum sum_of_squares_reference(const at::Tensor& x) {
  return {x.to(at::kDouble).square().sum().item<double>(), at::isfinite(x).all().item<bool>()};
}

// A finite sum has finite terms; any other is looked into, as a double's square may overflow.
SquareSum with_finite(double sum, const at::Tensor& x) {
  return {sum, std::isfinite(sum) || at::isfinite(x).all().item<bool>()};
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
  if (mode == Mode::reference) return adamw_reference_(p, g, m, v, step);
  require_fused("adamw_", "p", p, p);
  require_fused("adamw_", "g", g, p);
  require_fused("adamw_", "m", m, p);
  require_fused("adamw_", "v", v, p);
  const simd::AdamWFactors factors{.scale = step.gradient_scale,
                                   .beta1 = step.beta1,
                                   .beta2 = step.beta2,
                                   .keep = 1 - step.lr * step.weight_decay,
                                   .rate = step.lr / (1 - std::pow(step.beta1, step.t)),
                                   .root_scale = 1 / std::sqrt(1 - std::pow(step.beta2, step.t)),
                                   .eps = step.eps};
  dispatch_float_double(p, [&]<class T>(T) {
    simd::flat_loops<T>().adamw(p.numel(), factors, g.const_data_ptr<T>(), p.mutable_data_ptr<T>(),
                                m.mutable_data_ptr<T>(), v.mutable_data_ptr<T>());
  });
  // Not through ATen, so the version that autograd compares has to be raised here.
  p.unsafeGetTensorImpl()->bump_version();
}

SquareSum sum_of_squares(const at::Tensor& x, Mode mode) {
  const at::NoGradGuard no_grad;
  require_shape("sum_of_squares", "x", x, {-1});
  if (mode == Mode::reference) return sum_of_squares_reference(x);
  require_fused("sum_of_squares", "x", x, x);
  return dispatch_float_double(x, [&]<class T>(T) {
    return with_finite(simd::flat_loops<T>().sum_of_squares(x.numel(), x.const_data_ptr<T>()), x);
  });
}

SquareSum add_up_(at::Tensor& into, std::span<const at::Tensor> others, Mode mode) {
  const at::NoGradGuard no_grad;
  require_shape("add_up_", "into", into, {-1});
  for (const at::Tensor& other : others) require_shape("add_up_", "other", other, into.sizes());
  if (mode == Mode::reference) {
    for (const at::Tensor& other : others) into.add_(other);
    return sum_of_squares_reference(into);
  }
  require_fused("add_up_", "into", into, into);
  for (const at::Tensor& other : others) require_fused("add_up_", "other", other, into);
  return dispatch_float_double(into, [&]<class T>(T) {
    std::vector<const T*> from;
    for (const at::Tensor& other : others) from.push_back(other.const_data_ptr<T>());
    const double sum = simd::flat_loops<T>().add_up(
        into.numel(), from.data(), static_cast<int64_t>(from.size()), into.mutable_data_ptr<T>());
    return with_finite(sum, into);
  });
}

}  // namespace trireme::kernel
