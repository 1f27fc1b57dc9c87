#include "kernel/swiglu.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernel/simd/swiglu.h"
#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

at::Tensor swiglu_reference(const at::Tensor& gate_up) {
  const int64_t width = gate_up.size(1) / 2;
  return at::silu(gate_up.narrow(1, 0, width)) * gate_up.narrow(1, width, width);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Swiglu : torch::autograd::Function<Swiglu> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate_up) {
    const int64_t rows = gate_up.size(0), width = gate_up.size(1) / 2;
    const at::Tensor out = at::empty({rows, width}, gate_up.options());
    dispatch_float_double(gate_up, [&]<class T>(T) {
      simd::swiglu_loops<T>().forward(rows, width, gate_up.const_data_ptr<T>(),
                                      out.mutable_data_ptr<T>());
    });
    ctx->save_for_backward({gate_up});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[0].defined()) return {at::Tensor()};
    const at::Tensor d_out = grads[0].contiguous();
    const at::Tensor gate_up = ctx->get_saved_variables()[0];
    const at::Tensor d_gate_up = at::empty_like(gate_up);
    dispatch_float_double(gate_up, [&]<class T>(T) {
      simd::swiglu_loops<T>().backward(d_out.size(0), d_out.size(1), gate_up.const_data_ptr<T>(),
                                       d_out.const_data_ptr<T>(), d_gate_up.mutable_data_ptr<T>());
    });
    return {d_gate_up};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up, Mode mode) {
  require_shape("swiglu", "gate_up", gate_up, {-1, -1});
  require(gate_up.size(1) % 2 == 0, "swiglu: gate_up must be [T, 2F], got ", describe(gate_up));
  if (mode == Mode::reference) return swiglu_reference(gate_up);
  require_fused("swiglu", "gate_up", gate_up, gate_up);
  return Swiglu::apply(gate_up);
}

}  // namespace trireme::kernel
