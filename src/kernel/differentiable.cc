#include "kernel/differentiable.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "base/error.h"

namespace trireme::kernel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct Call {
  const std::function<ForwardPass()>& forward;
  std::vector<bool> given;  // one an input: whether it is defined
};

struct Kept : torch::CustomClassHolder {
  std::function<Tensors(const BackwardPass&)> backward;
  std::vector<bool> given;
};

struct Operator : torch::autograd::Function<Operator> {
  // Autograd takes the defined inputs from the list.
  static variable_list forward(AutogradContext* ctx, at::TensorList, const Call& call) {
    ForwardPass pass = call.forward();
    ctx->save_for_backward(std::move(pass.saved));
    ctx->set_materialize_grads(false);
    auto kept = c10::make_intrusive<Kept>();
    kept->backward = std::move(pass.backward);
    kept->given = call.given;
    ctx->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
    return std::move(pass.outputs);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const auto holder = ctx->saved_data["kept"].toCapsule();
    const Kept& kept = static_cast<const Kept&>(*holder);
    BackwardPass pass{ctx->get_saved_variables(), grads, kept.given};
    size_t edge = 0;
    for (size_t input = 0; input < kept.given.size(); ++input)
      if (kept.given[input]) pass.wanted[input] = ctx->needs_input_grad(edge++);
    Tensors gradients = kept.backward(pass);
    TRIREME_ASSERT(gradients.size() == kept.given.size(), "a backward returned ", gradients.size(),
                   " gradients of ", kept.given.size(), " inputs");
    variable_list returned;
    for (size_t input = 0; input < kept.given.size(); ++input)
      if (kept.given[input]) returned.push_back(std::move(gradients[input]));
    returned.emplace_back();  // of the Call
    return returned;
  }
};

}  // namespace

Tensors differentiable(const Tensors& inputs, const std::function<ForwardPass()>& forward) {
  Tensors defined;
  Call call{forward, {}};
  for (const at::Tensor& input : inputs) {
    call.given.push_back(input.defined());
    if (input.defined()) defined.push_back(input);
  }
  return Operator::apply(at::TensorList(defined), std::as_const(call));
}

}  // namespace trireme::kernel
