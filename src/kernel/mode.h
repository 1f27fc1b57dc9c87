// How an operator of this folder computes.
//
// Every operator is a function of tensors that autograd can differentiate, unless its header says
// otherwise. What holds for all of them:
//   Numbers:  fused works in the dtype of its inputs, float or double, all alike; the order of
//   every
//             sum is fixed, so a call gives the same bits every time on one machine. NaN and Inf go
//             through, they are never repaired.
//   Threads:  the caller's only, provided that it runs ATen with one thread.
//   Layout:   contiguous tensors on a CPU; another one is a bug of the caller's (InternalError).
//             Incoming gradients may have any strides.
//   Memory:   outputs, what the gradient needs, and scratch that lives as long as the call, all
//             through ATen's CPU allocator.
//   Weights:  a weight is a leaf. If its grad() is defined when backward runs, the gradient is
//   added
//             there in place and autograd gets nothing to add; otherwise autograd sets grad() as
//             usual. So grad() may be a view of a flat buffer and stays that view.
#pragma once

namespace trireme::kernel {

enum class Mode {
  fused,      // our loops
  reference,  // plain ATen operations: the oracle of the tests, and any device or dtype
};

}  // namespace trireme::kernel
