#include "kernel/swiglu.h"

#include <ATen/ATen.h>

#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

at::Tensor swiglu_reference(const at::Tensor& gate_up) {
  const int64_t width = gate_up.size(1) / 2;
  return at::silu(gate_up.narrow(1, 0, width)) * gate_up.narrow(1, width, width);
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up, Mode mode) {
  require_shape("swiglu", "gate_up", gate_up, {-1, -1});
  require(gate_up.size(1) % 2 == 0, "swiglu: gate_up must be [T, 2F], got ", describe(gate_up));
  (void)mode;
  return swiglu_reference(gate_up);
}

}  // namespace trireme::kernel
