// A linear layer, with or without bias.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernel/mode.h"

namespace trireme::kernel {

// How a weight lies: y = x w^T for [out, in], as torch.nn.Linear has it; y = x w for [in, out], as
// GPT-2's checkpoints have it.
enum class WeightLayout { out_in, in_out };

// y = x w^T + b. Shapes: x [T, in], weight [out, in] or [in, out], bias [out] or undefined, y [T,
// out]. Backward adds dy^T x by one GEMM straight into weight.grad(), and the sum of dy's rows in
// their order into bias.grad() (mode.h, Weights); it leaves out the product that nobody asked for.
// x and weight are kept for it. Cost: ATen's GEMM; with grad mode off, up to eight rows of an
// [out, in] weight cost reading it once.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, Mode mode,
                  const at::Tensor& bias = {}, WeightLayout layout = WeightLayout::out_in);

}  // namespace trireme::kernel
