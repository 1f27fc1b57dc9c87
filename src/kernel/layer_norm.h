// LayerNorm with the residual sum in front of it.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "kernel/mode.h"

namespace trireme::kernel {

// {r, y} with r = residual + delta and y = (r - mean(r)) * rsqrt(var(r) + eps) * weight + bias,
// mean and (biased) variance over a row.
//
// Shapes: residual, delta, r, y [T, H]; weight, bias [H]. Without delta, r is residual itself (an
// alias). The gradients of both outputs meet in the one of residual and delta, which share a
// tensor. Kept for backward: r and two numbers a row. Cost: bound by memory; backward reads r
// again.
std::pair<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& residual,
                                                 const std::optional<at::Tensor>& delta,
                                                 const at::Tensor& weight, const at::Tensor& bias,
                                                 double eps, Mode mode);

}  // namespace trireme::kernel
