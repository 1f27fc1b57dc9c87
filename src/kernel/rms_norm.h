// RMSNorm: with the residual sum in front of it, and of the heads of queries and keys.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <utility>

#include "kernel/mode.h"

namespace trireme::kernel {

// {r, y} with r = residual + delta and y = r * rsqrt(mean(r^2) + eps) * (offset + weight), the mean
// over a row. An offset of 1 is Gemma's, whose checkpoints hold the weight less one.
//
// Shapes: residual, delta, r, y [T, H]; weight [H]. Without delta, r is residual itself (an alias).
// The gradients of both outputs meet in the one of residual and delta, which share a tensor.
// Kept for backward: r and one number a row. Cost: bound by memory; backward reads r again.
std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& residual,
                                               const std::optional<at::Tensor>& delta,
                                               const at::Tensor& weight, double eps, Mode mode,
                                               double offset = 0);

// qkv with each query head and each key head normalised by itself: QK-norm, before the rotation.
//
// Shapes: qkv and out [T, (N + 2K) * D], a row being its query heads, key heads, value heads;
// query_weight, key_weight [D]. Kept for backward: qkv and one number a head. Cost: bound by
// memory.
struct HeadShape {
  int64_t heads, kv_heads, head_dim;  // N, K, D
};
at::Tensor head_rms_norm(const at::Tensor& qkv, const at::Tensor& query_weight,
                         const at::Tensor& key_weight, const HeadShape& shape, double eps,
                         Mode mode, double offset = 0);

}  // namespace trireme::kernel
