// The activations of feed-forward layers: gated units, and GELU alone.
//
// silu(z) = z sigmoid(z). gelu(z) is the tanh form, z/2 (1 + tanh(sqrt(2/pi) (z + 0.044715 z^3))):
// Hugging Face's gelu_new and gelu_pytorch_tanh, and not the erf form that plain "gelu" names.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernel/mode.h"

namespace trireme::kernel {

// act(gate) * up. Shapes: gate_up [T, 2F], gate in front; out [T, F]. gate_up is kept for backward.
// Cost: bound by memory.
at::Tensor swiglu(const at::Tensor& gate_up, Mode mode);  // act = silu: Llama, Qwen, Mistral
at::Tensor geglu(const at::Tensor& gate_up, Mode mode);   // act = gelu: Gemma

// Element by element. x [T, F] is kept for backward. Cost: bound by memory.
at::Tensor gelu(const at::Tensor& x, Mode mode);

}  // namespace trireme::kernel
