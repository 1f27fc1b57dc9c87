// A linear layer, with or without bias.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "kernel/mode.h"

namespace trireme::kernel {

// How a weight lies: y = x w^T for [out, in], as torch.nn.Linear has it; y = x w for [in, out], as
// GPT-2's checkpoints have it.
enum class WeightLayout { out_in, in_out };

// How an operand can be made again, to the bit, from tensors that are kept anyway: then it need not
// be kept itself. Without `make` it is kept. `make` runs without grad mode.
struct Remake {
  std::vector<at::Tensor> from;
  std::function<at::Tensor(const std::vector<at::Tensor>& from)> make;
};

// y = x w^T + b. Shapes: x [T, in], weight [out, in] or [in, out], bias [out] or undefined, y [T,
// out]. Backward adds dy^T x by one GEMM straight into weight.grad(), and the sum of dy's rows in
// their order into bias.grad() (mode.h, Weights); it leaves out the product that nobody asked for.
// weight and x are kept for it, or what x is made again from. Cost: ATen's GEMM; with grad mode
// off, up to eight rows of an [out, in] weight cost reading it once, by all of ATen's threads, and
// each row of y is the one that its row of x alone would give.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, Mode mode,
                  const at::Tensor& bias = {}, WeightLayout layout = WeightLayout::out_in,
                  const Remake& x_again = {});

}  // namespace trireme::kernel
