// The output layer and its loss in one, so that the logits never exist as a whole.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernel/mode.h"

namespace trireme::kernel {

inline constexpr int64_t kIgnoredLabel = -100;

// Rows of logits that exist at a time: enough for the GEMMs' full speed, few enough for the cache.
inline constexpr int64_t kLossChunkRows = 256;

// The sum, over the rows whose label is not kIgnoredLabel, of lse(z) - z[label] with z = x
// weight^T, or z = softcap * tanh(x weight^T / softcap): a tensor without dims. Shapes: x [T, H],
// weight [V, H], labels int64 [T], each kIgnoredLabel or in [0, V) (InputError). Without a valid
// row: 0, and zero gradients.
//
// Fused works through 256 rows at a time and knows a chunk's gradient as soon as its logits: so
// `seed`, the gradient that this sum is going to receive (1 / n for a mean over the step's n
// tokens), must be said now. With grad mode on, the call itself computes the gradient of x and
// *adds the weight's into weight.grad()* (mode.h, Weights); backward checks that it receives `seed`
// and hands out what is ready. So call it once per backward, and not in a recomputed block. With
// grad mode off there is only the loss. Cost: three GEMMs of 2 T H V FLOPs (one without gradient);
// 256 V logits.
at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& labels, double seed, Mode mode,
                                double softcap = 0);

// z[label] - lse(z), the natural log of each label's probability, [T]; 0 where the label is
// kIgnoredLabel. Forward only: an input that requires a gradient while grad mode is on is refused.
at::Tensor linear_log_probs(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                            Mode mode, double softcap = 0);

// x weight^T, [T, V], bent by the soft-cap. Forward only.
at::Tensor linear_logits(const at::Tensor& x, const at::Tensor& weight, Mode mode,
                         double softcap = 0);

}  // namespace trireme::kernel
