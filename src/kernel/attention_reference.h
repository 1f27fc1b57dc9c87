// Attention as attention.h says, by ATen operations over the whole S x S scores. Arguments are
// checked, and shape.scale and shape.window are said.
#pragma once

#include "kernel/attention.h"

namespace trireme::kernel {

at::Tensor attention_reference(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                               const at::Tensor& positions, const at::Tensor& documents,
                               const AttentionShape& shape);

at::Tensor attention_cached_reference(const at::Tensor& qkv, const at::Tensor& cos,
                                      const at::Tensor& sin, const at::Tensor& positions,
                                      const at::Tensor& lengths, const KeyValueCache& cache,
                                      const AttentionShape& shape);

}  // namespace trireme::kernel
