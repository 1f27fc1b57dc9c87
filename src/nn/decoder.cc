#include "nn/decoder.h"

#include "kernel/cross_entropy.h"
#include "kernel/embedding.h"

namespace trireme {
namespace {

constexpr const char* kEmbedding = "embedding";  // the block's name, for ties

int64_t parameters_of(const LinearSpec& spec) { return spec.inputs * spec.width(); }

class Embedding final : public Block {
 public:
  Embedding(const EmbeddingSpec& spec, int64_t sequence)
      : Block(kEmbedding, weights_of(spec)), spec_(spec), sequence_(sequence) {}

  BlockOutput forward(std::span<const at::Tensor>, std::span<const at::Tensor> weights,
                      const Context& context) const override {
    at::Tensor x = kernel::embedding(context.at("tokens"), weights[0], context.mode, spec_.scale);
    if (spec_.positions)
      x = x + kernel::embedding(context.at("positions").to(at::kLong), weights[1], context.mode);
    return {{x}, {}, {}};  // [T, H]
  }

  BlockCost cost(int64_t element_bytes) const override {
    return {0, sequence_ * spec_.hidden * element_bytes, 0};
  }

 private:
  static std::vector<WeightSpec> weights_of(const EmbeddingSpec& spec) {
    const auto table = [&](const std::string& name, int64_t rows) {
      return WeightSpec{
          {{name + ".weight", {rows, spec.hidden}, {Initial::Kind::normal, spec.init_std}, true}}};
    };
    std::vector<WeightSpec> weights = {table(spec.tokens, spec.vocab)};
    if (spec.positions) weights.push_back(table(spec.positions->name, spec.positions->count));
    return weights;
  }

  EmbeddingSpec spec_;
  int64_t sequence_;
};

class Layer final : public Block {
 public:
  Layer(const LayerSpec& spec, int64_t sequence, bool first)
      : Block(spec.name, weights_of(spec)), spec_(spec), sequence_(sequence), first_(first) {}

  BlockOutput forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> tensors,
                      const Context& context) const override {
    WeightReader weights(tensors);
    const auto delta = inputs.size() > 1 ? std::optional(inputs[1]) : std::nullopt;
    const Normed x = add_norm(spec_.attention_norm, inputs[0], delta, weights, context);
    at::Tensor attended = attention(spec_.attention, x.out, weights, context, x.again);
    if (spec_.attention_post_norm)
      attended = add_norm(*spec_.attention_post_norm, attended, std::nullopt, weights, context).out;
    const Normed y = add_norm(spec_.feed_forward_norm, x.sum, attended, weights, context);
    at::Tensor out = feed_forward(spec_.feed_forward, y.out, weights, context, y.again);
    if (spec_.feed_forward_post_norm)
      out = add_norm(*spec_.feed_forward_post_norm, out, std::nullopt, weights, context).out;
    return {{y.sum, out}, {}, {}};
  }

  BlockCost cost(int64_t element_bytes) const override {
    const int64_t h = spec_.attention_norm.width, f = spec_.feed_forward.width();
    const AttentionSpec& a = spec_.attention;
    const int64_t q = a.heads * a.head_dim, qkv = a.qkv.width();
    const double flops = 2.0 * static_cast<double>(sequence_ * matmul_parameters(spec_)) +
                         attention_flops(a, sequence_);
    // Kept: both norms' results, the first sum (the first layer's is its input), q|k|v, attention's
    // result with one number a head, what the activation reads and gives, a number or two a norm.
    int64_t kept = (first_ ? 2 : 3) * h + qkv + q + a.heads + spec_.feed_forward.in.width() + f;
    kept += numbers(spec_.attention_norm) + numbers(spec_.feed_forward_norm);
    if (a.head_norm) kept += qkv + a.heads + a.kv_heads;
    if (spec_.attention_post_norm) kept += 2 * h + 1;  // attention's result, and its norm
    if (spec_.feed_forward_post_norm) kept += h + 1;
    BlockCost cost{flops, 2 * sequence_ * h * element_bytes, sequence_ * kept * element_bytes};
    cost.remade_bytes =
        sequence_ * (2 * h + f) * element_bytes;  // norms' results, the activation's
    cost.remade_scratch_bytes = sequence_ * f * element_bytes;
    // Backward of the activation: its two gradients, where its result is no longer needed.
    cost.backward_scratch_bytes = sequence_ * spec_.feed_forward.in.width() * element_bytes;
    return cost;
  }

 private:
  static int64_t numbers(const NormSpec& norm) {
    return norm.kind == NormSpec::Kind::layer ? 2 : 1;
  }

  static std::vector<WeightSpec> weights_of(const LayerSpec& spec) {
    std::vector<WeightSpec> weights;
    declare(spec.attention_norm, weights);
    declare(spec.attention, weights);
    if (spec.attention_post_norm) declare(*spec.attention_post_norm, weights);
    declare(spec.feed_forward_norm, weights);
    declare(spec.feed_forward, weights);
    if (spec.feed_forward_post_norm) declare(*spec.feed_forward_post_norm, weights);
    return weights;
  }

  LayerSpec spec_;
  int64_t sequence_;
  bool first_;
};

// The last norm, the output matrix and the loss.
class Head final : public Block {
 public:
  Head(const HeadSpec& spec, int64_t sequence)
      : Block("head", weights_of(spec), ties_of(spec)), spec_(spec), sequence_(sequence) {}

  BlockOutput forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> tensors,
                      const Context& context) const override {
    WeightReader weights(tensors);
    const auto delta = inputs.size() > 1 ? std::optional(inputs[1]) : std::nullopt;
    at::Tensor x = add_norm(spec_.norm, inputs[0], delta, weights, context).out;
    const at::Tensor& output = weights.next();
    BlockOutput out;
    switch (context.want) {
      case Want::loss: {
        const auto& labels = context.at("labels");
        out.losses.push_back(
            {"loss",
             kernel::linear_cross_entropy(x, output, labels, context.loss_seed, context.mode,
                                          spec_.softcap),
             static_cast<double>(labels.ne(kernel::kIgnoredLabel).sum().item<int64_t>())});
        break;
      }
      case Want::logits:
        if (const auto rows = context.batch.find("rows"); rows != context.batch.end())
          x = x.index_select(0, rows->second);
        out.results["logits"] = kernel::linear_logits(x, output, context.mode, spec_.softcap);
        break;
      case Want::log_probs:
        out.results["log_probs"] =
            kernel::linear_log_probs(x, output, context.at("labels"), context.mode, spec_.softcap);
        break;
    }
    return out;
  }

  BlockCost cost(int64_t element_bytes) const override {
    const double matmul =
        2.0 * static_cast<double>(sequence_) * static_cast<double>(spec_.norm.width * spec_.vocab);
    // The sum, the normalised x and its gradient.
    BlockCost cost{matmul, 0, 3 * sequence_ * spec_.norm.width * element_bytes};
    cost.forward_scratch_bytes = sequence_ * spec_.vocab * element_bytes;
    cost.forward_scratch_limit = kernel::kLossChunkRows * spec_.vocab * element_bytes;
    return cost;
  }

  bool adds_gradients_in_forward() const override { return true; }

 private:
  static std::vector<WeightSpec> weights_of(const HeadSpec& spec) {
    std::vector<WeightSpec> weights;
    declare(spec.norm, weights);
    if (spec.output)
      weights.push_back({{{*spec.output + ".weight",
                           {spec.vocab, spec.norm.width},
                           {Initial::Kind::normal, spec.init_std},
                           true}}});
    return weights;
  }

  static std::vector<TiedWeight> ties_of(const HeadSpec& spec) {
    if (spec.output) return {};
    return {{kEmbedding, 0}};
  }

  HeadSpec spec_;
  int64_t sequence_;
};

}  // namespace

std::unique_ptr<Block> make_embedding(const EmbeddingSpec& spec, int64_t sequence) {
  return std::make_unique<Embedding>(spec, sequence);
}

std::unique_ptr<Block> make_layer(const LayerSpec& spec, int64_t sequence, bool first) {
  return std::make_unique<Layer>(spec, sequence, first);
}

std::unique_ptr<Block> make_head(const HeadSpec& spec, int64_t sequence) {
  return std::make_unique<Head>(spec, sequence);
}

int64_t matmul_parameters(const LayerSpec& spec) {
  return parameters_of(spec.attention.qkv) + parameters_of(spec.attention.out) +
         parameters_of(spec.feed_forward.in) + parameters_of(spec.feed_forward.out);
}

}  // namespace trireme
