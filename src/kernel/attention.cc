#include "kernel/attention.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernel/attention_reference.h"
#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

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

AttentionShape with_scale(AttentionShape shape) {
  if (shape.scale == 0) shape.scale = 1 / std::sqrt(static_cast<double>(shape.head_dim));
  return shape;
}

}  // namespace

at::Tensor attention(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                     const at::Tensor& positions, const at::Tensor& documents,
                     const AttentionShape& shape, Mode mode) {
  check_rows("attention", qkv, cos, sin, positions, shape);
  check_documents(documents, shape);
  (void)mode;
  return attention_reference(qkv, cos, sin, positions, documents, with_scale(shape));
}

at::Tensor attention_cached(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                            const at::Tensor& positions, const at::Tensor& lengths,
                            const KeyValueCache& cache, const AttentionShape& shape, Mode mode) {
  check_rows("attention_cached", qkv, cos, sin, positions, shape);
  check_cache(lengths, cache, shape);
  require_no_grad("attention_cached", qkv, cache.keys);
  (void)mode;
  return attention_cached_reference(qkv, cos, sin, positions, lengths, cache, with_scale(shape));
}

}  // namespace trireme::kernel
