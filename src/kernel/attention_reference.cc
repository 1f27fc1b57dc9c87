#include "kernel/attention_reference.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <limits>

namespace trireme::kernel {
namespace {

// [T, heads, D], the first 2 * R / 2 features of each head turned.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
                  const at::Tensor& positions) {
  if (!cos.defined()) return x;
  const at::Tensor c = cos.index_select(0, positions).unsqueeze(1);  // [T, 1, R / 2]
  const at::Tensor s = sin.index_select(0, positions).unsqueeze(1);
  const int64_t half = cos.size(1);
  const at::Tensor x1 = x.narrow(-1, 0, half), x2 = x.narrow(-1, half, half);
  return at::cat({x1 * c - x2 * s, x2 * c + x1 * s, x.narrow(-1, 2 * half, x.size(-1) - 2 * half)},
                 -1);
}

struct Heads {
  at::Tensor queries, keys, values;  // [B, N, S, D], [B, K, S, D], [B, K, S, D]
};

Heads split_heads(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                  const at::Tensor& positions, const AttentionShape& shape) {
  const int64_t n = shape.heads, k = shape.kv_heads;
  const at::Tensor rows = qkv.view({-1, n + 2 * k, shape.head_dim});  // [T, N + 2K, D]
  const auto whole = [&](const at::Tensor& x) {
    return x.reshape({shape.batch, shape.sequence, x.size(1), shape.head_dim}).transpose(1, 2);
  };
  return {whole(rotate(rows.narrow(1, 0, n), cos, sin, positions)),
          whole(rotate(rows.narrow(1, n, k), cos, sin, positions)),
          whole(rows.narrow(1, n + k, k))};
}

// Attention of queries [B, N, Q, D] over keys and values [B, K, P, D]; hidden is true where query
// must not see key, and broadcasts to [B, N, Q, P]. Out [B * Q, N * D].
at::Tensor attend(const at::Tensor& queries, const at::Tensor& keys, const at::Tensor& values,
                  const at::Tensor& hidden, const AttentionShape& shape) {
  const int64_t group = queries.size(1) / keys.size(1);
  const at::Tensor k = keys.repeat_interleave(group, 1), v = values.repeat_interleave(group, 1);
  at::Tensor scores = at::matmul(queries, k.transpose(2, 3)) * shape.scale;
  if (shape.softcap > 0) scores = shape.softcap * at::tanh(scores / shape.softcap);
  const at::Tensor weights =
      scores.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(-1);
  return at::matmul(weights, v)
      .transpose(1, 2)
      .reshape({queries.size(0) * queries.size(2), queries.size(1) * queries.size(3)});
}

// [Q, P]: true where key j lies behind query i + offset, or outside its window.
at::Tensor unseen(int64_t queries, int64_t keys, int64_t offset, int64_t window,
                  at::Device device) {
  const at::Tensor all = at::ones({queries, keys}, at::dtype(at::kBool).device(device));
  return all.triu(1 + offset).logical_or(all.tril(offset - std::min(window, offset + queries)));
}

}  // namespace

at::Tensor attention_reference(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                               const at::Tensor& positions, const at::Tensor& documents,
                               const AttentionShape& shape) {
  const Heads heads = split_heads(qkv, cos, sin, positions, shape);
  at::Tensor hidden = unseen(shape.sequence, shape.sequence, 0, shape.window, qkv.device());
  if (documents.defined())
    hidden = hidden.logical_or(documents.unsqueeze(2) != documents.unsqueeze(1)).unsqueeze(1);
  return attend(heads.queries, heads.keys, heads.values, hidden, shape);
}

at::Tensor attention_cached_reference(const at::Tensor& qkv, const at::Tensor& cos,
                                      const at::Tensor& sin, const at::Tensor& positions,
                                      const at::Tensor& lengths, const KeyValueCache& cache,
                                      const AttentionShape& shape) {
  const Heads heads = split_heads(qkv, cos, sin, positions, shape);
  std::vector<at::Tensor> out;
  for (int64_t b = 0; b < shape.batch; ++b) {
    const int64_t length = lengths[b].item<int64_t>(), end = length + shape.sequence;
    cache.keys[b].narrow(1, length, shape.sequence).copy_(heads.keys[b]);
    cache.values[b].narrow(1, length, shape.sequence).copy_(heads.values[b]);
    out.push_back(attend(heads.queries.narrow(0, b, 1),
                         cache.keys[b].narrow(1, 0, end).unsqueeze(0),
                         cache.values[b].narrow(1, 0, end).unsqueeze(0),
                         unseen(shape.sequence, end, length, shape.window, qkv.device()), shape));
  }
  return out.empty() ? at::empty({0, shape.heads * shape.head_dim}, qkv.options()) : at::cat(out);
}

}  // namespace trireme::kernel
