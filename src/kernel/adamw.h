// AdamW and the sums around it, over flat ranges: the update of a step.
//
// All tensors are contiguous, of one dtype and one length. Nothing here is recorded by autograd.
// Cost: bound by memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

#include "kernel/mode.h"

namespace trireme::kernel {

struct AdamWStep {
  double lr;  // the scheduled one; decay uses it too
  double beta1, beta2;
  double eps;             // added after the bias-corrected root
  double weight_decay;    // decoupled
  double gradient_scale;  // of g, before anything else: the clip factor
  int64_t t;              // counts from 1
};

// In place, with g' = gradient_scale * g:
//   m = beta1 m + (1 - beta1) g'
//   v = beta2 v + (1 - beta2) g'^2
//   p = p (1 - lr weight_decay) - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", with torch.optim.AdamW's
// order.
void adamw_(at::Tensor& p, const at::Tensor& g, at::Tensor& m, at::Tensor& v, const AdamWStep& step,
            Mode mode);

struct SquareSum {
  double value = 0;    // NaN or Inf if an element is, or if a double's square overflows
  bool finite = true;  // whether every element is
};

// The sum of x^2, in double, over blocks of 4096 elements in their order.
SquareSum sum_of_squares(const at::Tensor& x, Mode mode);

// into = into + others[0] + others[1] + …, in that order, and the new sum of squares, in one pass.
SquareSum add_up_(at::Tensor& into, std::span<const at::Tensor> others, Mode mode);

}  // namespace trireme::kernel
