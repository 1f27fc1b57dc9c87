#include "kernel/embedding.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cstring>

#include "kernel/differentiable.h"
#include "kernel/simd/flat.h"
#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

void check_ids(const at::Tensor& ids, int64_t rows) {
  const int64_t* id = ids.const_data_ptr<int64_t>();
  for (int64_t t = 0; t < ids.numel(); ++t)
    TRIREME_CHECK(id[t] >= 0 && id[t] < rows, "embedding: id ", id[t], " at place ", t,
                  " is outside the table of ", rows, " rows");
}

Tensors backward(const BackwardPass& pass, double scale) {
  if (!pass.d_out[0].defined()) return {at::Tensor()};
  const at::Tensor d_out = pass.d_out[0].contiguous();
  const at::Tensor &ids = pass.saved[0], &weight = pass.saved[1];
  const WeightGradient d_weight("embedding", weight);
  const int64_t width = weight.size(1);
  const int64_t* id = ids.const_data_ptr<int64_t>();
  dispatch_float_double(weight, [&]<class T>(T) {
    const auto add = simd::flat_loops<T>().add_scaled;
    const T* from = d_out.const_data_ptr<T>();
    T* table = d_weight.data<T>();
    for (int64_t t = 0; t < ids.size(0); ++t, from += width)
      add(width, scale, from, table + id[t] * width);
  });
  return {d_weight.returned};
}

at::Tensor embedding_fused(const at::Tensor& ids, const at::Tensor& weight, double scale) {
  return differentiable({weight}, [&] {
    const int64_t width = weight.size(1);
    const at::Tensor out = at::empty({ids.size(0), width}, weight.options());
    const int64_t* id = ids.const_data_ptr<int64_t>();
    dispatch_float_double(weight, [&]<class T>(T) {
      const T* table = weight.const_data_ptr<T>();
      T* to = out.mutable_data_ptr<T>();
      for (int64_t t = 0; t < ids.size(0); ++t, to += width)
        std::memcpy(to, table + id[t] * width, width * sizeof(T));
    });
    if (scale != 1) out.mul_(scale);
    return ForwardPass{
        {out}, {ids, weight}, [scale](const BackwardPass& pass) { return backward(pass, scale); }};
  })[0];
}

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight, Mode mode, double scale) {
  require_shape("embedding", "ids", ids, {-1});
  require(ids.scalar_type() == at::kLong, "embedding: ids must be int64, got ", describe(ids));
  require_shape("embedding", "weight", weight, {-1, -1});
  if (ids.is_cpu()) check_ids(ids, weight.size(0));
  if (mode == Mode::reference) {
    const at::Tensor rows = weight.index_select(0, ids);
    return scale == 1 ? rows : rows * scale;
  }
  require_fused("embedding", "weight", weight, weight);
  require(ids.is_cpu(), "embedding: ids must be on a CPU, got ", describe(ids));
  return embedding_fused(ids, weight, scale);
}

}  // namespace trireme::kernel
