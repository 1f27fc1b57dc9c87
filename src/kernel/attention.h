// Causal grouped-query attention with its rotary embedding, within documents.
//
// Shapes: B batch, S sequence, T = B * S rows (sequences one after the other), N heads, K key/value
// heads (K divides N; query head n reads key/value head n / (N / K)), D head width, R rotary width.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernel/mode.h"

namespace trireme::kernel {

struct AttentionShape {
  int64_t batch, sequence, heads, kv_heads, head_dim;
  double scale = 0;    // of the scores; 0 stands for head_dim^-0.5
  int64_t window = 0;  // row i sees the rows j with i - j < window; 0: all before it
  double softcap = 0;  // scores become softcap * tanh(score / softcap); 0: they stay
};

// [T, N * D] from qkv [T, (N + 2K) * D], a row being its query heads, key heads, value heads.
//
// Queries and keys are first rotated by the tables' rows `positions` (rope.h). Row i sees the rows
// j <= i of its sequence that carry its document number, the last `window` of them.
//   cos, sin    [max_positions, R / 2], R <= D; both undefined: no rotation, and positions is not
//   read positions   int32 [T], each below max_positions (InputError) documents   int32 [B, S], not
//   decreasing along a row (InputError); undefined: one document a row
// No table gets a gradient. Kept for backward: qkv, the output, one number a (row, head).
// Cost: 2 S N D FLOPs a row forward, twice as many backward (causal half, before documents cut it);
// what a window hides costs nothing.
at::Tensor attention(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                     const at::Tensor& positions, const at::Tensor& documents,
                     const AttentionShape& shape, Mode mode);

// One layer's keys (rotated) and values of what was read so far.
struct KeyValueCache {
  at::Tensor keys, values;  // [B, K, capacity, D]
};

// The same for S new tokens a sequence that follow lengths[b] cached ones: writes their keys and
// values to places lengths[b] … lengths[b] + S - 1 of `cache` and lets new token i see the places
// up to lengths[b] + i. One document. The caller raises `lengths` once all layers have run.
//   lengths     int64 [B], lengths[b] + S <= capacity (InputError)
// Prompts of unequal lengths are read one sequence at a time, through narrow(0, b, 1) of the cache.
// Forward only: an input that requires a gradient while grad mode is on is refused.
at::Tensor attention_cached(const at::Tensor& qkv, const at::Tensor& cos, const at::Tensor& sin,
                            const at::Tensor& positions, const at::Tensor& lengths,
                            const KeyValueCache& cache, const AttentionShape& shape, Mode mode);

}  // namespace trireme::kernel
