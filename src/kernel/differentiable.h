// How an operator of this folder gets its gradient. Only differentiable.cc sees autograd's headers,
// whose templates would take 20 s to compile in each file that names them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace trireme::kernel {

using Tensors = std::vector<at::Tensor>;

struct BackwardPass {
  Tensors saved;             // as ForwardPass has them
  const Tensors& d_out;      // one an output; undefined where no gradient comes back
  std::vector<bool> wanted;  // one an input: whether anything asks for its gradient
};

struct ForwardPass {
  Tensors outputs;
  // What backward reads; it may hold inputs and outputs. A change in place between the two passes
  // is an error of autograd's.
  Tensors saved;
  // The gradients, one an input, undefined where there is none. It must hold no input and no
  // output but through `saved`: autograd cannot see into it.
  std::function<Tensors(const BackwardPass&)> backward;
};

// The outputs of `forward`, which runs with grad mode off, differentiable by `inputs`. An undefined
// input is one that was not given: it gets no gradient. Backward runs at most once at a time, on
// the thread that asks for it.
Tensors differentiable(const Tensors& inputs, const std::function<ForwardPass()>& forward);

}  // namespace trireme::kernel
