#include "kernel/rms_norm.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>

#include "kernel/differentiable.h"
#include "kernel/simd/rms_norm.h"
#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

at::Tensor normalized(const at::Tensor& x, const at::Tensor& weight, double eps, double offset) {
  const at::Tensor y = x * x.square().mean(-1, /*keepdim=*/true).add(eps).rsqrt();
  return y * (offset == 0 ? weight : weight + offset);
}

std::pair<at::Tensor, at::Tensor> add_rms_norm_reference(const at::Tensor& residual,
                                                         const std::optional<at::Tensor>& delta,
                                                         const at::Tensor& weight, double eps,
                                                         double offset) {
  const at::Tensor r = delta ? residual + *delta : residual;
  return {r, normalized(r, weight, eps, offset)};
}

Tensors add_backward(const BackwardPass& pass, double offset) {
  const at::Tensor &d_r = pass.d_out[0], &d_y = pass.d_out[1];
  if (!d_y.defined()) return {d_r, d_r, at::Tensor()};
  const at::Tensor &r = pass.saved[0], &rstd = pass.saved[1], &weight = pass.saved[2];
  const WeightGradient d_weight("add_rms_norm", weight);
  const at::Tensor dy = d_y.contiguous(), dr = d_r.defined() ? d_r.contiguous() : d_r;
  const at::Tensor dx = at::empty_like(r);
  dispatch_float_double(r, [&]<class T>(T) {
    simd::rms_norm_loops<T>().backward(r.size(0), r.size(1), r.const_data_ptr<T>(),
                                       rstd.const_data_ptr<T>(), weight.const_data_ptr<T>(), offset,
                                       dy.const_data_ptr<T>(), data_or_null<T>(dr),
                                       dx.mutable_data_ptr<T>(), d_weight.data<T>());
  });
  return {dx, dx, d_weight.returned};
}

// `delta` may be undefined.
Tensors add_rms_norm_fused(const at::Tensor& residual, const at::Tensor& delta,
                           const at::Tensor& weight, double eps, double offset) {
  return differentiable({residual, delta, weight}, [&] {
    const int64_t rows = residual.size(0), width = residual.size(1);
    const at::Tensor r = delta.defined() ? at::empty_like(residual) : residual;
    const at::Tensor y = at::empty_like(residual);
    const at::Tensor rstd = at::empty({rows}, residual.options());
    dispatch_float_double(residual, [&]<class T>(T) {
      simd::rms_norm_loops<T>().forward(rows, width, residual.const_data_ptr<T>(),
                                        data_or_null<T>(delta), weight.const_data_ptr<T>(), offset,
                                        eps, delta.defined() ? r.mutable_data_ptr<T>() : nullptr,
                                        y.mutable_data_ptr<T>(), rstd.mutable_data_ptr<T>());
    });
    return ForwardPass{{r, y}, {r, rstd, weight}, [offset](const BackwardPass& pass) {
                         return add_backward(pass, offset);
                       }};
  });
}

Tensors head_backward(const BackwardPass& pass, const HeadShape& shape, double offset) {
  if (!pass.d_out[0].defined()) return Tensors(3);
  const at::Tensor dy = pass.d_out[0].contiguous();
  const at::Tensor &qkv = pass.saved[0], &rstd = pass.saved[1];
  const at::Tensor &query_weight = pass.saved[2], &key_weight = pass.saved[3];
  const int64_t heads = shape.heads, kv_heads = shape.kv_heads, d = shape.head_dim;
  const int64_t normed = heads + kv_heads;
  const WeightGradient d_query("head_rms_norm", query_weight), d_key("head_rms_norm", key_weight);
  const at::Tensor dx = at::empty_like(qkv);
  dispatch_float_double(qkv, [&]<class T>(T) {
    const auto norm = simd::rms_norm_loops<T>().backward;
    const T *x = qkv.const_data_ptr<T>(), *scale = rstd.const_data_ptr<T>(),
            *g = dy.const_data_ptr<T>();
    const T *query = query_weight.const_data_ptr<T>(), *key = key_weight.const_data_ptr<T>();
    T* to = dx.mutable_data_ptr<T>();
    for (int64_t row = 0; row < qkv.size(0); ++row) {
      norm(heads, d, x, scale, query, offset, g, nullptr, to, d_query.data<T>());
      norm(kv_heads, d, x + heads * d, scale + heads, key, offset, g + heads * d, nullptr,
           to + heads * d, d_key.data<T>());
      std::copy_n(g + normed * d, kv_heads * d, to + normed * d);
      x += qkv.size(1), g += qkv.size(1), to += qkv.size(1), scale += normed;
    }
  });
  return {dx, d_query.returned, d_key.returned};
}

at::Tensor head_rms_norm_fused(const at::Tensor& qkv, const at::Tensor& query_weight,
                               const at::Tensor& key_weight, const HeadShape& shape, double eps,
                               double offset) {
  return differentiable({qkv, query_weight, key_weight}, [&] {
    const int64_t rows = qkv.size(0), normed = shape.heads + shape.kv_heads, d = shape.head_dim;
    const at::Tensor out = at::empty_like(qkv);
    const at::Tensor rstd = at::empty({rows, normed}, qkv.options());
    dispatch_float_double(qkv, [&]<class T>(T) {
      const auto norm = simd::rms_norm_loops<T>().forward;
      const T *from = qkv.const_data_ptr<T>(), *query = query_weight.const_data_ptr<T>(),
              *key = key_weight.const_data_ptr<T>();
      T *to = out.mutable_data_ptr<T>(), *scale = rstd.mutable_data_ptr<T>();
      for (int64_t row = 0; row < rows; ++row, from += qkv.size(1), to += qkv.size(1)) {
        norm(shape.heads, d, from, nullptr, query, offset, eps, nullptr, to, scale);
        norm(shape.kv_heads, d, from + shape.heads * d, nullptr, key, offset, eps, nullptr,
             to + shape.heads * d, scale + shape.heads);
        std::copy_n(from + normed * d, shape.kv_heads * d, to + normed * d);
        scale += normed;
      }
    });
    return ForwardPass{
        {out}, {qkv, rstd, query_weight, key_weight}, [shape, offset](const BackwardPass& pass) {
          return head_backward(pass, shape, offset);
        }};
  })[0];
}

at::Tensor head_rms_norm_reference(const at::Tensor& qkv, const at::Tensor& query_weight,
                                   const at::Tensor& key_weight, const HeadShape& shape, double eps,
                                   double offset) {
  const at::Tensor rows = qkv.view({qkv.size(0), shape.heads + 2 * shape.kv_heads, shape.head_dim});
  return at::cat({normalized(rows.narrow(1, 0, shape.heads), query_weight, eps, offset),
                  normalized(rows.narrow(1, shape.heads, shape.kv_heads), key_weight, eps, offset),
                  rows.narrow(1, shape.heads + shape.kv_heads, shape.kv_heads)},
                 1)
      .view(qkv.sizes());
}

}  // namespace

std::pair<at::Tensor, at::Tensor> add_rms_norm(const at::Tensor& residual,
                                               const std::optional<at::Tensor>& delta,
                                               const at::Tensor& weight, double eps, Mode mode,
                                               double offset) {
  require_shape("add_rms_norm", "residual", residual, {-1, -1});
  if (delta) require_shape("add_rms_norm", "delta", *delta, residual.sizes());
  require_shape("add_rms_norm", "weight", weight, {residual.size(1)});
  if (mode == Mode::reference) return add_rms_norm_reference(residual, delta, weight, eps, offset);
  require_fused("add_rms_norm", "residual", residual, residual);
  if (delta) require_fused("add_rms_norm", "delta", *delta, residual);
  require_fused("add_rms_norm", "weight", weight, residual);
  const Tensors out =
      add_rms_norm_fused(residual, delta.value_or(at::Tensor()), weight, eps, offset);
  return {out[0], out[1]};
}

at::Tensor head_rms_norm(const at::Tensor& qkv, const at::Tensor& query_weight,
                         const at::Tensor& key_weight, const HeadShape& shape, double eps,
                         Mode mode, double offset) {
  const char* op = "head_rms_norm";
  require_shape(op, "qkv", qkv, {-1, (shape.heads + 2 * shape.kv_heads) * shape.head_dim});
  require_shape(op, "query_weight", query_weight, {shape.head_dim});
  require_shape(op, "key_weight", key_weight, {shape.head_dim});
  if (mode == Mode::reference)
    return head_rms_norm_reference(qkv, query_weight, key_weight, shape, eps, offset);
  require_fused(op, "qkv", qkv, qkv);
  require_fused(op, "query_weight", query_weight, qkv);
  require_fused(op, "key_weight", key_weight, qkv);
  return head_rms_norm_fused(qkv, query_weight, key_weight, shape, eps, offset);
}

}  // namespace trireme::kernel
