#include "kernel/activation.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "kernel/simd/activation.h"
#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

enum class Kind { swiglu, geglu, gelu };

template <Kind kKind, class T>
simd::ActivationLoops<T> loops() {
  if constexpr (kKind == Kind::swiglu) return simd::activations<T>().swiglu;
  else if constexpr (kKind == Kind::geglu) return simd::activations<T>().geglu;
  else return simd::activations<T>().gelu;
}

// x [T, 2F] if gated, else [T, F].
template <Kind kKind>
struct Activation : torch::autograd::Function<Activation<kKind>> {
  static constexpr bool kGated = kKind != Kind::gelu;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x) {
    const int64_t rows = x.size(0), width = kGated ? x.size(1) / 2 : x.size(1);
    const at::Tensor out = at::empty({rows, width}, x.options());
    dispatch_float_double(x, [&]<class T>(T) {
      loops<kKind, T>().forward(rows, width, x.const_data_ptr<T>(), out.mutable_data_ptr<T>());
    });
    ctx->save_for_backward({x});
    return out;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    if (!grads[0].defined()) return {at::Tensor()};
    const at::Tensor d_out = grads[0].contiguous();
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::Tensor dx = at::empty_like(x);
    dispatch_float_double(x, [&]<class T>(T) {
      loops<kKind, T>().backward(d_out.size(0), d_out.size(1), x.const_data_ptr<T>(),
                                 d_out.const_data_ptr<T>(), dx.mutable_data_ptr<T>());
    });
    return {dx};
  }
};

template <Kind kKind>
at::Tensor gated(const char* op, const at::Tensor& gate_up, Mode mode) {
  require_shape(op, "gate_up", gate_up, {-1, -1});
  require(gate_up.size(1) % 2 == 0, op, ": gate_up must be [T, 2F], got ", describe(gate_up));
  if (mode == Mode::reference) {
    const int64_t width = gate_up.size(1) / 2;
    const at::Tensor gate = gate_up.narrow(1, 0, width);
    return (kKind == Kind::swiglu ? at::silu(gate) : at::gelu(gate, "tanh")) *
           gate_up.narrow(1, width, width);
  }
  require_fused(op, "gate_up", gate_up, gate_up);
  return Activation<kKind>::apply(gate_up);
}

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_up, Mode mode) {
  return gated<Kind::swiglu>("swiglu", gate_up, mode);
}

at::Tensor geglu(const at::Tensor& gate_up, Mode mode) {
  return gated<Kind::geglu>("geglu", gate_up, mode);
}

at::Tensor gelu(const at::Tensor& x, Mode mode) {
  require_shape("gelu", "x", x, {-1, -1});
  if (mode == Mode::reference) return at::gelu(x, "tanh");
  require_fused("gelu", "x", x, x);
  return Activation<Kind::gelu>::apply(x);
}

}  // namespace trireme::kernel
