// The gated unit of Llama's feed-forward layer.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernel/mode.h"

namespace trireme::kernel {

// silu(gate) * up with silu(z) = z / (1 + exp(-z)). Shapes: gate_up [T, 2F], gate in front; out [T,
// F]. gate_up is kept for backward. Cost: bound by memory.
at::Tensor swiglu(const at::Tensor& gate_up, Mode mode);

}  // namespace trireme::kernel
