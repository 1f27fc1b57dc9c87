#include "kernel/linear.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernel/differentiable.h"
#include "kernel/simd/few_rows.h"
#include "kernel/simd/flat.h"
#include "kernel/tensor_checks.h"
#include "kernel/work_time.h"

namespace trireme::kernel {
namespace {

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

// Saved: weight, bias, then x, or what `x_again` makes it from.
Tensors backward(const BackwardPass& pass, WeightLayout layout,
                 const decltype(Remake::make)& x_again) {
  const at::Tensor& dy = pass.d_out[0];
  at::Tensor dx, dw, db;
  if (!dy.defined()) return {dx, dw, db};
  const at::Tensor &weight = pass.saved[0], &bias = pass.saved[1];
  if (pass.wanted[0]) {
    const TimedWork timed(&WorkTime::gemm);
    dx = at::mm(dy, out_in(weight, layout));
  }
  if (weight.requires_grad()) {
    const at::Tensor x =
        x_again ? x_again({pass.saved.begin() + 2, pass.saved.end()}) : pass.saved[2];
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
  return {dx, dw, db};
}

at::Tensor linear_fused(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                        WeightLayout layout, const Remake& x_again) {
  return differentiable({x, weight, bias}, [&] {
    Tensors saved = {weight, bias};
    if (x_again.make) saved.insert(saved.end(), x_again.from.begin(), x_again.from.end());
    else saved.push_back(x);
    const at::Tensor w = out_in(weight, layout);
    const TimedWork timed(&WorkTime::gemm);
    return ForwardPass{{bias.defined() ? at::addmm(bias, x, w.t()) : at::mm(x, w.t())},
                       std::move(saved),
                       [layout, make = x_again.make](const BackwardPass& pass) {
                         return backward(pass, layout, make);
                       }};
  })[0];
}

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
  return linear_fused(x, weight, bias, layout, x_again);
}

}  // namespace trireme::kernel
