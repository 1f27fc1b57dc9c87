#include "kernel/attention.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <cmath>

#include "kernel/attention_reference.h"
#include "kernel/differentiable.h"
#include "kernel/simd/attention.h"
#include "kernel/tensor_checks.h"
#include "kernel/work_time.h"

namespace trireme::kernel {
namespace {

// More than any document, and far from overflow.
constexpr int64_t kNoWindow = int64_t{1} << 40;

void check_rows(const char* op, const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                const at::Tensor& positions, const AttentionShape& shape) {
  require(shape.batch >= 0 && shape.sequence >= 0 && shape.kv_heads > 0 && shape.head_dim > 0 &&
              shape.heads % shape.kv_heads == 0,
          op, ": key/value heads must divide heads, got ", shape.heads, " heads, ", shape.kv_heads,
          " key/value heads, width ", shape.head_dim);
  const int64_t rows = shape.batch * shape.sequence;
  require_shape(op, "qkv", qkv, {rows, (shape.heads + 2 * shape.kv_heads) * shape.head_dim});
  require(cos.defined() == sin.defined(), op, ": cos and sin come together or not at all");
  if (!cos.defined()) return;
  require_shape(op, "cos", cos, {-1, -1});
  require_shape(op, "sin", sin, cos.sizes());
  require(2 * cos.size(1) <= shape.head_dim, op, ": the tables turn ", 2 * cos.size(1),
          " features, a head has ", shape.head_dim);
  require_shape(op, "positions", positions, {rows});
  require(positions.scalar_type() == at::kInt, op, ": positions must be int32, got ",
          describe(positions));
  if (!positions.is_cpu()) return;
  const int32_t* position = positions.const_data_ptr<int32_t>();
  for (int64_t t = 0; t < rows; ++t)
    TRIREME_CHECK(position[t] >= 0 && position[t] < cos.size(0), op, ": position ", position[t],
                  " of row ", t, " is outside the tables of ", cos.size(0), " positions");
}

void check_documents(const at::Tensor& documents, const AttentionShape& shape) {
  if (!documents.defined()) return;
  require_shape("attention", "documents", documents, {shape.batch, shape.sequence});
  require(documents.scalar_type() == at::kInt, "attention: documents must be int32, got ",
          describe(documents));
  if (!documents.is_cpu()) return;
  const int32_t* document = documents.const_data_ptr<int32_t>();
  for (int64_t t = 1; t < documents.numel(); ++t)
    TRIREME_CHECK(t % shape.sequence == 0 || document[t - 1] <= document[t],
                  "attention: document numbers must not decrease along a row, got ",
                  document[t - 1], " before ", document[t], " at place ", t % shape.sequence,
                  " of row ", t / shape.sequence);
}

void check_cache(const at::Tensor& lengths, const KeyValueCache& cache,
                 const AttentionShape& shape) {
  const char* op = "attention_cached";
  require(cache.keys.dim() == 4 && cache.keys.size(0) == shape.batch &&
              cache.keys.size(1) == shape.kv_heads && cache.keys.size(3) == shape.head_dim,
          op, ": keys must be [", shape.batch, ", ", shape.kv_heads, ", capacity, ", shape.head_dim,
          "], got ", describe(cache.keys));
  require_shape(op, "keys", cache.keys, cache.keys.sizes());
  require_shape(op, "values", cache.values, cache.keys.sizes());
  require_shape(op, "lengths", lengths, {shape.batch});
  require(lengths.scalar_type() == at::kLong && lengths.is_cpu(), op,
          ": lengths must be int64 on a CPU, got ", describe(lengths));
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t length = lengths.const_data_ptr<int64_t>()[b];
    TRIREME_CHECK(length >= 0 && length + shape.sequence <= cache.keys.size(2), op, ": ",
                  shape.sequence, " new tokens after ", length, " do not fit the cache of ",
                  cache.keys.size(2), " places");
  }
}

AttentionShape with_defaults(AttentionShape shape) {
  require(shape.window >= 0 && shape.softcap >= 0, "attention: window ", shape.window,
          " and softcap ", shape.softcap, " must not be negative");
  if (shape.scale == 0) shape.scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  if (shape.window == 0) shape.window = kNoWindow;
  return shape;
}

void check_fused(const char* op, const at::Tensor& qkv, const at::Tensor& cos,
                 const at::Tensor& sin) {
  require_fused(op, "qkv", qkv, qkv);
  if (!cos.defined()) return;
  require_fused(op, "cos", cos, qkv);
  require_fused(op, "sin", sin, qkv);
}

// What has no gradient.
struct Context {
  at::Tensor cos, sin, positions, documents;
  AttentionShape shape;
};

// The rows first … first + rows - 1 of qkv.
template <class T>
simd::AttentionRows<T> rows_of(const at::Tensor& qkv, const Context& context, int64_t first,
                               int64_t rows) {
  const AttentionShape& shape = context.shape;
  simd::AttentionRows<T> in{.qkv = qkv.const_data_ptr<T>() + first * qkv.size(1),
                            .rotation = {},
                            .rows = rows,
                            .heads = shape.heads,
                            .kv_heads = shape.kv_heads,
                            .head_dim = shape.head_dim,
                            .scale = shape.scale,
                            .window = shape.window,
                            .softcap = shape.softcap};
  if (context.cos.defined())
    in.rotation = {context.cos.const_data_ptr<T>(), context.sin.const_data_ptr<T>(),
                   context.positions.const_data_ptr<int32_t>() + first, context.cos.size(1)};
  return in;
}

// Calls body(first row, rows) for each document.
template <class Body>
void for_each_document(const Context& context, Body&& body) {
  const AttentionShape& shape = context.shape;
  const int32_t* documents =
      context.documents.defined() ? context.documents.const_data_ptr<int32_t>() : nullptr;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t sequence = b * shape.sequence, end = sequence + shape.sequence;
    for (int64_t first = sequence, next; first < end; first = next) {
      next = end;
      if (documents)
        next = std::upper_bound(documents + first, documents + end, documents[first]) - documents;
      body(first, next - first);
    }
  }
}

int64_t longest_document(const Context& context) {
  int64_t longest = 0;
  for_each_document(context, [&](int64_t, int64_t rows) { longest = std::max(longest, rows); });
  return longest;
}

Tensors backward(const BackwardPass& pass, const AttentionShape& shape) {
  if (!pass.d_out[0].defined()) return {at::Tensor()};
  const TimedWork timed(&WorkTime::attention);
  const at::Tensor d_out = pass.d_out[0].contiguous();
  const at::Tensor &qkv = pass.saved[0], &out = pass.saved[1], &lse = pass.saved[2];
  const Context context{pass.saved[3], pass.saved[4], pass.saved[5], pass.saved[6], shape};
  const at::Tensor d_qkv = at::empty_like(qkv);
  dispatch_float_double(qkv, [&]<class T>(T) {
    const auto loops = simd::attention_loops<T>();
    const at::Tensor scratch = at::empty(
        {loops.backward_scratch(longest_document(context), shape.head_dim)}, qkv.options());
    for_each_document(context, [&](int64_t first, int64_t rows) {
      loops.backward(rows_of<T>(qkv, context, first, rows),
                     out.const_data_ptr<T>() + first * out.size(1), lse.const_data_ptr<T>() + first,
                     lse.size(1), d_out.const_data_ptr<T>() + first * out.size(1),
                     d_qkv.mutable_data_ptr<T>() + first * qkv.size(1),
                     scratch.mutable_data_ptr<T>());
    });
  });
  return {d_qkv};
}

at::Tensor attend(const at::Tensor& qkv, const Context& context) {
  return differentiable({qkv}, [&] {
    const TimedWork timed(&WorkTime::attention);
    const AttentionShape& shape = context.shape;
    const at::Tensor out = at::empty({qkv.size(0), shape.heads * shape.head_dim}, qkv.options());
    const at::Tensor lse = at::empty({shape.heads, qkv.size(0)}, qkv.options());
    dispatch_float_double(qkv, [&]<class T>(T) {
      const auto loops = simd::attention_loops<T>();
      const at::Tensor scratch = at::empty(
          {loops.forward_scratch(longest_document(context), shape.head_dim)}, qkv.options());
      for_each_document(context, [&](int64_t first, int64_t rows) {
        loops.forward(
            rows_of<T>(qkv, context, first, rows), out.mutable_data_ptr<T>() + first * out.size(1),
            lse.mutable_data_ptr<T>() + first, lse.size(1), scratch.mutable_data_ptr<T>());
      });
    });
    return ForwardPass{
        {out},
        {qkv, out, lse, context.cos, context.sin, context.positions, context.documents},
        [shape](const BackwardPass& pass) { return backward(pass, shape); }};
  })[0];
}

at::Tensor attend_cached(const at::Tensor& qkv, const Context& context, const at::Tensor& lengths,
                         const KeyValueCache& cache) {
  const TimedWork timed(&WorkTime::attention);
  const AttentionShape& shape = context.shape;
  const at::Tensor out = at::empty({qkv.size(0), shape.heads * shape.head_dim}, qkv.options());
  if (shape.batch == 0 || shape.sequence == 0) return out;
  const int64_t* length = lengths.const_data_ptr<int64_t>();
  const int64_t longest = *std::max_element(length, length + shape.batch) + shape.sequence;
  dispatch_float_double(qkv, [&]<class T>(T) {
    const auto loops = simd::attention_loops<T>();
    // A second thread is worth beginning for so many multiplications and no fewer.
    constexpr int64_t kGrain = int64_t{1} << 17;
    const int64_t each = 2 * longest * shape.head_dim * shape.sequence * shape.heads;
    const int64_t grain = kGrain * shape.kv_heads / std::max<int64_t>(each, 1) + 1;
    at::parallel_for(0, shape.batch * shape.kv_heads, grain, [&](int64_t begin, int64_t end) {
      const at::Tensor scratch =
          at::empty({loops.forward_scratch(longest, shape.head_dim)}, qkv.options());
      for (int64_t next; begin < end; begin = next) {
        const int64_t b = begin / shape.kv_heads, first = b * shape.sequence;
        next = std::min(end, (b + 1) * shape.kv_heads);
        loops.forward_cached(
            {rows_of<T>(qkv, context, first, shape.sequence),
             cache.keys.mutable_data_ptr<T>() + b * cache.keys.stride(0),
             cache.values.mutable_data_ptr<T>() + b * cache.values.stride(0), cache.keys.size(2),
             length[b], begin - b * shape.kv_heads, next - b * shape.kv_heads},
            out.mutable_data_ptr<T>() + first * out.size(1), scratch.mutable_data_ptr<T>());
      }
    });
  });
  return out;
}

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                     const at::Tensor& positions, const at::Tensor& documents,
                     const AttentionShape& shape, Mode mode) {
  check_rows("attention", qkv, cos, sin, positions, shape);
  check_documents(documents, shape);
  if (mode == Mode::reference)
    return attention_reference(qkv, cos, sin, positions, documents, with_defaults(shape));
  check_fused("attention", qkv, cos, sin);
  return attend(qkv, {cos, sin, positions, documents, with_defaults(shape)});
}

at::Tensor attention_cached(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                            const at::Tensor& positions, const at::Tensor& lengths,
                            const KeyValueCache& cache, const AttentionShape& shape, Mode mode) {
  const char* op = "attention_cached";
  check_rows(op, qkv, cos, sin, positions, shape);
  check_cache(lengths, cache, shape);
  require_no_grad(op, qkv, cache.keys);
  if (mode == Mode::reference)
    return attention_cached_reference(qkv, cos, sin, positions, lengths, cache,
                                      with_defaults(shape));
  check_fused(op, qkv, cos, sin);
  require_fused(op, "keys", cache.keys, qkv);
  require_fused(op, "values", cache.values, qkv);
  return attend_cached(qkv, {cos, sin, positions, {}, with_defaults(shape)}, lengths, cache);
}

}  // namespace trireme::kernel
