#include "kernel/linear.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "kernel/simd/few_rows.h"
#include "kernel/simd/flat.h"
#include "kernel/tensor_checks.h"
#include "kernel/work_time.h"

namespace trireme::kernel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The weight as [out, in].
at::Tensor out_in(const at::Tensor& weight, WeightLayout layout) {
  return layout == WeightLayout::out_in ? weight : weight.t();
}

// into [out] += the rows of dy [T, out], in their order.
void add_rows(const at::Tensor& dy, const WeightGradient& into) {
  const at::Tensor rows = dy.contiguous();
  dispatch_float_double(rows, [&]<class T>(T) {
    const auto add = simd::flat_loops<T>().add_scaled;
    const T* from = rows.const_data_ptr<T>();
    for (int64_t row = 0; row < rows.size(0); ++row, from += rows.size(1))
      add(rows.size(1), 1, from, into.data<T>());
  });
}

// So many rows at most are bound by reading the weight, and no GEMM: a batch that is generated.
constexpr int64_t kFewRows = 8;

at::Tensor multiply_few_rows(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& bias) {
  const TimedWork timed(&WorkTime::gemm);
  const at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
  dispatch_float_double(x, [&]<class T>(T) {
    const auto multiply = simd::few_rows_loops<T>().multiply;
    const int64_t in = weight.size(1), out = weight.size(0);
    const T* from = weight.const_data_ptr<T>();
    const T* added = bias.defined() ? bias.const_data_ptr<T>() : nullptr;
    // A grain is read in about the time that a second thread takes to begin.
    constexpr int64_t kGrain = int64_t{1} << 16;
    at::parallel_for(
        0, out, kGrain / std::max<int64_t>(in, 1) + 1, [&](int64_t begin, int64_t end) {
          multiply(x.size(0), in, end - begin, x.const_data_ptr<T>(), from + begin * in,
                   added ? added + begin : nullptr, y.mutable_data_ptr<T>() + begin, out);
        });
  });
  return y;
}

struct Maker : torch::CustomClassHolder {
  decltype(Remake::make) make;
};

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const std::optional<at::Tensor>& bias, WeightLayout layout,
                            const Remake& x_again) {
    variable_list kept = {weight, bias.value_or(at::Tensor())};
    if (x_again.make) {
      kept.insert(kept.end(), x_again.from.begin(), x_again.from.end());
      auto maker = c10::make_intrusive<Maker>();
      maker->make = x_again.make;
      ctx->saved_data["x_again"] = c10::IValue::make_capsule(std::move(maker));
    } else {
      kept.push_back(x);
    }
    ctx->save_for_backward(std::move(kept));
    ctx->saved_data["out_in"] = layout == WeightLayout::out_in;
    const at::Tensor w = out_in(weight, layout);
    const TimedWork timed(&WorkTime::gemm);
    return bias ? at::addmm(*bias, x, w.t()) : at::mm(x, w.t());
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const at::Tensor& dy = grads[0];
    if (!dy.defined()) return variable_list(5);
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor &weight = saved[0], &bias = saved[1];
    const auto layout =
        ctx->saved_data["out_in"].toBool() ? WeightLayout::out_in : WeightLayout::in_out;
    at::Tensor dx, dw, db;
    if (ctx->needs_input_grad(0)) {
      const TimedWork timed(&WorkTime::gemm);
      dx = at::mm(dy, out_in(weight, layout));
    }
    if (weight.requires_grad()) {
      const at::Tensor x = operand(ctx, saved);
      const TimedWork timed(&WorkTime::gemm);
      const bool stands = layout == WeightLayout::out_in;
      const at::Tensor a = stands ? dy.t() : x.t(), b = stands ? x : dy;
      if (has_grad_to_add_to(weight)) grad_to_add_to("linear", weight).addmm_(a, b);
      else dw = at::mm(a, b);
    }
    if (bias.defined() && bias.requires_grad()) {
      const WeightGradient d_bias("linear", bias);
      add_rows(dy, d_bias);
      db = d_bias.returned;
    }
    return {dx, dw, db, at::Tensor(), at::Tensor()};
  }

  static at::Tensor operand(AutogradContext* ctx, const variable_list& saved) {
    const auto maker = ctx->saved_data.find("x_again");
    if (maker == ctx->saved_data.end()) return saved[2];
    return static_cast<const Maker&>(*maker->second.toCapsule())
        .make({saved.begin() + 2, saved.end()});
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, Mode mode, const at::Tensor& bias,
                  WeightLayout layout, const Remake& x_again) {
  require_shape("linear", "weight", weight, {-1, -1});
  const at::Tensor w = out_in(weight, layout);
  require_shape("linear", "x", x, {-1, w.size(1)});
  if (bias.defined()) require_shape("linear", "bias", bias, {w.size(0)});
  if (mode == Mode::reference) {
    const at::Tensor y = at::matmul(x, w.t());
    return bias.defined() ? y + bias : y;
  }
  require_fused("linear", "x", x, x);
  require_fused("linear", "weight", weight, x);
  if (bias.defined()) require_fused("linear", "bias", bias, x);
  if (!at::GradMode::is_enabled() && x.size(0) <= kFewRows && layout == WeightLayout::out_in)
    return multiply_few_rows(x, weight, bias);
  return Linear::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, layout,
                       x_again);
}

}  // namespace trireme::kernel
