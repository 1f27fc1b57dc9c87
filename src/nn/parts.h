// What decoder blocks are put together from: linear layers, norms, self-attention, feed-forward.
//
// A part is a description: it says which weights it needs, in an order, and computes from weights
// that come in that order. A block is a list of parts; a family says which (model/).
//
// Shapes: T tokens of all sequences, H hidden, N query heads, K key/value heads, D head width, F
// feed-forward width.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernel/linear.h"
#include "kernel/rope.h"
#include "nn/block.h"

namespace trireme {

// Hands out a block's weights in the order in which its parts declared them.
class WeightReader {
 public:
  explicit WeightReader(std::span<const at::Tensor> weights) : weights_(weights) {}
  const at::Tensor& next();

 private:
  std::span<const at::Tensor> weights_;
  size_t at_ = 0;
};

// One GEMM for matrices that lie one behind the other, such as q|k|v. Parameters are NAME.weight
// and, with bias, NAME.bias.
struct LinearSpec {
  struct Output {
    std::string name;
    int64_t width;
  };
  std::vector<Output> outputs;  // one only if the layout is in_out
  int64_t inputs = 0;
  double init_std = 0;
  bool bias = false;
  kernel::WeightLayout layout = kernel::WeightLayout::out_in;

  int64_t width() const;  // of all outputs
};

void declare(const LinearSpec& spec, std::vector<WeightSpec>& weights);
at::Tensor linear(const LinearSpec& spec, const at::Tensor& x, WeightReader& weights,
                  const Context& context, const kernel::Remake& x_again = {});

// Parameters are NAME.weight and, for LayerNorm, NAME.bias.
struct NormSpec {
  enum class Kind { rms, layer } kind = Kind::rms;
  std::string name;
  int64_t width = 0;
  double eps = 0;
  double offset = 0;  // added to the weight, whose initial value is 1 - offset; RMSNorm only
};

void declare(const NormSpec& spec, std::vector<WeightSpec>& weights);
// kernel/rms_norm.h and kernel/layer_norm.h.
struct Normed {
  at::Tensor sum, out;   // residual + delta, its norm
  kernel::Remake again;  // of `out`, if the context remakes
};
Normed add_norm(const NormSpec& spec, const at::Tensor& residual,
                const std::optional<at::Tensor>& delta, WeightReader& weights,
                const Context& context);

// Causal grouped-query attention within documents, by whole sequences or through the context's
// cache. Reads of the batch: "positions", "documents" (kernel/attention.h).
struct AttentionSpec {
  LinearSpec qkv, out;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  struct HeadNorm {  // of each query and key head, before the rotation
    NormSpec query, key;
  };
  std::optional<HeadNorm> head_norm;
  kernel::RopeTables rope;  // undefined tables: no rotation
  double scale = 0;         // 0: head_dim^-0.5
  int64_t window = 0;       // 0: none
  double softcap = 0;       // 0: none
  size_t cache_layer = 0;
};

void declare(const AttentionSpec& spec, std::vector<WeightSpec>& weights);
at::Tensor attention(const AttentionSpec& spec, const at::Tensor& x, WeightReader& weights,
                     const Context& context, const kernel::Remake& x_again);  // [T, H] -> [T, H]
// FLOPs of scores and their use, of one sequence: what window and causality leave.
double attention_flops(const AttentionSpec& spec, int64_t sequence);

struct FeedForwardSpec {
  enum class Unit { swiglu, geglu, gelu } unit = Unit::swiglu;
  LinearSpec in, out;  // `in` holds gate|up for the gated units

  int64_t width() const;  // F
};

void declare(const FeedForwardSpec& spec, std::vector<WeightSpec>& weights);
at::Tensor feed_forward(const FeedForwardSpec& spec, const at::Tensor& x, WeightReader& weights,
                        const Context& context,
                        const kernel::Remake& x_again);  // [T, H] -> [T, H]

}  // namespace trireme
