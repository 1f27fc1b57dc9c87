// Rows of a table.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernel/mode.h"

namespace trireme::kernel {

// scale * weight[ids]. Shapes: ids int64 [T], each in [0, V) (InputError); weight [V, H]; out [T,
// H]. Backward adds row by row, in the order of ids, into weight.grad() (mode.h, Weights): the cost
// is T rows, and not V of them, if grad() is there.
at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight, Mode mode, double scale = 1);

}  // namespace trireme::kernel
