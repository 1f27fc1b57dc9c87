// A linear layer without bias.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernel/mode.h"

namespace trireme::kernel {

// y = x w^T. Shapes: x [T, in], weight [out, in], y [T, out].
// Backward adds dy^T x straight into weight.grad() by one GEMM (mode.h, Weights), and leaves out
// the product that nobody asked for. x and weight are kept for it. Cost: ATen's GEMM.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, Mode mode);

}  // namespace trireme::kernel
