// RMSNorm with the residual sum in front of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "kernel/mode.h"

namespace trireme::kernel {

// {r, y} with r = residual + delta and y = r * rsqrt(mean(r^2) + eps) * weight, the mean over a
// row.
//
// Shapes: residual, delta, r, y [T, H]; weight [H]. Without delta, r is residual itself (an alias).
// The gradients of both outputs meet in the one of residual and delta, which share a tensor.
// Kept for backward: r and one number a row. Cost: bound by memory; backward reads r again.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& residual,
                                               const std::optional<at::Tensor>& delta,
                                               const at::Tensor& weight, double eps, Mode mode);

}  // namespace trireme::kernel
