#include "kernel/activation.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include "kernel/differentiable.h"
#include "kernel/simd/activation.h"
#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

enum class Kind { swiglu, geglu, gelu };

template <Kind kKind, class T>
simd::ActivationLoops<T> loops() {
  if constexpr (kKind == Kind::swiglu) return simd::activations<T>().swiglu;
  else if constexpr (kKind == Kind::geglu) return simd::activations<T>().geglu;
  else return simd::activations<T>().gelu;
}

template <Kind kKind>
Tensors backward(const BackwardPass& pass) {
  if (!pass.d_out[0].defined()) return {at::Tensor()};
  const at::Tensor d_out = pass.d_out[0].contiguous();
  const at::Tensor& x = pass.saved[0];
  const at::Tensor dx = at::empty_like(x);
  dispatch_float_double(x, [&]<class T>(T) {
    loops<kKind, T>().backward(d_out.size(0), d_out.size(1), x.const_data_ptr<T>(),
                               d_out.const_data_ptr<T>(), dx.mutable_data_ptr<T>());
  });
  return {dx};
}

// x [T, 2F] if gated, else [T, F].
template <Kind kKind>
at::Tensor fused(const at::Tensor& x) {
  return differentiable({x}, [&] {
    const int64_t rows = x.size(0), width = kKind == Kind::gelu ? x.size(1) : x.size(1) / 2;
    const at::Tensor out = at::empty({rows, width}, x.options());
    dispatch_float_double(x, [&]<class T>(T) {
      loops<kKind, T>().forward(rows, width, x.const_data_ptr<T>(), out.mutable_data_ptr<T>());
    });
    return ForwardPass{{out}, {x}, backward<kKind>};
  })[0];
}

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
  return fused<kKind>(gate_up);
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
  return fused<Kind::gelu>(x);
}

}  // namespace trireme::kernel
