#include "model/llama.h"

#include <ATen/ops/zeros.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "kernel/cross_entropy.h"
#include "kernel/embedding.h"
#include "kernel/linear.h"
#include "kernel/rms_norm.h"
#include "kernel/rope.h"
#include "kernel/activation.h"

// Shapes: B sequences, S tokens a sequence, T = B * S, V vocabulary; H, N, K, D, F as in llama.h.

namespace trireme {
namespace {

ParameterSpec matrix(std::string name, int64_t out, int64_t in, double std) {
  return {std::move(name), {out, in}, {Initial::Kind::normal, std}, true};
}

ParameterSpec norm_weight(std::string name, int64_t width) {
  return {std::move(name), {width}, {Initial::Kind::constant, 1}, false};
}

class Embedding final : public Block {
 public:
  explicit Embedding(const LlamaConfig& c, int64_t sequence)
      : Block("embedding", {{{matrix("model.embed_tokens.weight", c.vocab_size, c.hidden_size,
                                     c.initializer_range)}}}),
        hidden_(c.hidden_size),
        sequence_(sequence) {}

  BlockOutput forward(std::span<const at::Tensor>, std::span<const at::Tensor> weights,
                      const Context& context) const override {
    return {{kernel::embedding(context.at("tokens"), weights[0], context.mode)}, {}, {}};  // [T, H]
  }

  BlockCost cost(int64_t element_bytes) const override {
    return {0, sequence_ * hidden_ * element_bytes, 0};
  }

 private:
  int64_t hidden_, sequence_;
};

// Takes (residual, delta) and gives (residual, delta), so that each sum is fused with the norm
// behind it.
class Layer final : public Block {
 public:
  Layer(const LlamaConfig& c, int64_t index, int64_t sequence, kernel::RopeTables rope)
      : Block(concat("layer ", index), layer_weights(c, index)),
        c_(c),
        index_(static_cast<size_t>(index)),
        sequence_(sequence),
        rope_(std::move(rope)) {}

  BlockOutput forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> weights,
                      const Context& context) const override {
    const kernel::Mode mode = context.mode;
    const auto delta = inputs.size() > 1 ? std::optional(inputs[1]) : std::nullopt;
    const auto [residual, x] =
        kernel::add_rms_norm(inputs[0], delta, weights[0], c_.rms_norm_eps, mode);  // [T, H]
    const auto qkv = kernel::linear(x, weights[1], mode);  // [T, (N + 2K) D]
    const auto attended = kernel::linear(attend(qkv, context), weights[2], mode);  // [T, H]
    const auto [middle, y] =
        kernel::add_rms_norm(residual, attended, weights[3], c_.rms_norm_eps, mode);
    const auto gate_up = kernel::linear(y, weights[4], mode);  // [T, 2F]
    return {{middle, kernel::linear(kernel::swiglu(gate_up, mode), weights[5], mode)}, {}, {}};
  }

  BlockCost cost(int64_t element_bytes) const override {
    const int64_t h = c_.hidden_size, f = c_.intermediate_size, s = sequence_;
    const int64_t q = c_.num_attention_heads * c_.head_dim;
    const int64_t qkv = q + 2 * c_.num_key_value_heads * c_.head_dim;
    const double matmul =
        2.0 * static_cast<double>(s) * static_cast<double>(h * qkv + q * h + 3 * h * f);
    const double attention =
        2.0 * static_cast<double>(s) * static_cast<double>(s * q);  // scores and values, causal
    // Kept: both norms' results, the first sum (the first layer's is its input), q|k|v, attention's
    // result with one number a head, gate|up, their product.
    const int64_t kept = (index_ > 0 ? 3 : 2) * h + qkv + q + c_.num_attention_heads + 3 * f + 2;
    return {matmul + attention, 2 * s * h * element_bytes, s * kept * element_bytes};
  }

 private:
  static std::vector<WeightSpec> layer_weights(const LlamaConfig& c, int64_t index) {
    const std::string at = concat("model.layers.", index, ".");
    const double std = c.initializer_range,
                 out = std / std::sqrt(2.0 * static_cast<double>(c.num_hidden_layers));
    const int64_t h = c.hidden_size, f = c.intermediate_size;
    const int64_t q = c.num_attention_heads * c.head_dim, kv = c.num_key_value_heads * c.head_dim;
    return {
        {{norm_weight(at + "input_layernorm.weight", h)}},
        {{matrix(at + "self_attn.q_proj.weight", q, h, std),
          matrix(at + "self_attn.k_proj.weight", kv, h, std),
          matrix(at + "self_attn.v_proj.weight", kv, h, std)}},
        {{matrix(at + "self_attn.o_proj.weight", h, q, out)}},
        {{norm_weight(at + "post_attention_layernorm.weight", h)}},
        {{matrix(at + "mlp.gate_proj.weight", f, h, std),
          matrix(at + "mlp.up_proj.weight", f, h, std)}},
        {{matrix(at + "mlp.down_proj.weight", h, f, out)}},
    };
  }

  at::Tensor attend(const at::Tensor& qkv, const Context& context) const {
    const auto& positions = context.at("positions");
    kernel::AttentionShape shape{1, qkv.size(0), c_.num_attention_heads, c_.num_key_value_heads,
                                 c_.head_dim};
    if (context.cache) {
      const auto& lengths = context.cache->lengths;
      shape.batch = lengths.size(0);
      shape.sequence = qkv.size(0) / shape.batch;
      return kernel::attention_cached(qkv, rope_.cos, rope_.sin, positions, lengths,
                                      context.cache->layers[index_], shape, context.mode);
    }
    const auto& documents = context.at("documents");  // [B, S]
    shape.batch = documents.size(0);
    shape.sequence = documents.size(1);
    return kernel::attention(qkv, rope_.cos, rope_.sin, positions, documents, shape, context.mode);
  }

  LlamaConfig c_;
  size_t index_;
  int64_t sequence_;
  kernel::RopeTables rope_;
};

// The last norm, the output matrix and the loss.
class Head final : public Block {
 public:
  Head(const LlamaConfig& c, int64_t sequence)
      : Block("head", head_weights(c),
              c.tie_word_embeddings ? std::vector<TiedWeight>{{"embedding", 0}}
                                    : std::vector<TiedWeight>{}),
        c_(c),
        sequence_(sequence) {}

  BlockOutput forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> weights,
                      const Context& context) const override {
    const auto delta = inputs.size() > 1 ? std::optional(inputs[1]) : std::nullopt;
    at::Tensor x =
        kernel::add_rms_norm(inputs[0], delta, weights[0], c_.rms_norm_eps, context.mode).second;
    BlockOutput out;
    switch (context.want) {
      case Want::loss: {
        const auto& labels = context.at("labels");
        out.losses.push_back(
            {"loss",
             kernel::linear_cross_entropy(x, weights[1], labels, context.loss_seed, context.mode),
             static_cast<double>(labels.ne(kernel::kIgnoredLabel).sum().item<int64_t>())});
        break;
      }
      case Want::logits:
        if (const auto rows = context.batch.find("rows"); rows != context.batch.end())
          x = x.index_select(0, rows->second);
        out.results["logits"] = kernel::linear(x, weights[1], context.mode);
        break;
      case Want::log_probs:
        out.results["log_probs"] =
            kernel::linear_log_probs(x, weights[1], context.at("labels"), context.mode);
        break;
    }
    return out;
  }

  BlockCost cost(int64_t element_bytes) const override {
    const double matmul =
        2.0 * static_cast<double>(sequence_) * static_cast<double>(c_.hidden_size * c_.vocab_size);
    return {matmul, 0,
            3 * sequence_ * c_.hidden_size *
                element_bytes};  // the sum, the normalised x and its gradient
  }

  bool adds_gradients_in_forward() const override { return true; }

 private:
  static std::vector<WeightSpec> head_weights(const LlamaConfig& c) {
    std::vector<WeightSpec> weights = {{{norm_weight("model.norm.weight", c.hidden_size)}}};
    if (!c.tie_word_embeddings)
      weights.push_back(
          {{matrix("lm_head.weight", c.vocab_size, c.hidden_size, c.initializer_range)}});
    return weights;
  }

  LlamaConfig c_;
  int64_t sequence_;
};

class Llama final : public LanguageModel {
 public:
  explicit Llama(const LlamaConfig& config) : c_(config) {
    TRIREME_ASSERT(c_.vocab_size > 0 && c_.hidden_size > 0 && c_.num_hidden_layers > 0 &&
                   c_.head_dim > 0);
    TRIREME_ASSERT(c_.num_attention_heads % c_.num_key_value_heads == 0);
  }

  Model build(at::ScalarType dtype, int64_t sequence) const override {
    const auto rope = kernel::rope_tables(kernel::rope_frequencies(c_.head_dim, c_.rope_theta),
                                          std::max(sequence, int64_t{1}), dtype);
    Model model;
    model.nodes.push_back({std::make_unique<Embedding>(c_, sequence), {}, {"x0"}, {}});
    std::vector<std::string> values = {"x0"};
    for (int64_t i = 0; i < c_.num_hidden_layers; ++i) {
      std::vector<std::string> next = {concat("x", i + 1), concat("delta", i + 1)};
      model.nodes.push_back({std::make_unique<Layer>(c_, i, sequence, rope), values, next, {}});
      values = next;
    }
    model.nodes.push_back({std::make_unique<Head>(c_, sequence), values, {}, {}});
    return model;
  }

  int64_t vocab() const override { return c_.vocab_size; }
  int64_t max_positions() const override { return c_.max_position_embeddings; }

  GenerationCache make_cache(at::ScalarType dtype, int64_t batch, int64_t capacity) const override {
    GenerationCache cache;
    const auto zeros = [&] {
      return at::zeros({batch, c_.num_key_value_heads, capacity, c_.head_dim},
                       at::TensorOptions(dtype));
    };
    for (int64_t i = 0; i < c_.num_hidden_layers; ++i) cache.layers.push_back({zeros(), zeros()});
    cache.lengths = at::zeros({batch}, at::kLong);
    return cache;
  }

  double training_flops_per_token(int64_t sequence) const override {
    const int64_t h = c_.hidden_size, q = c_.num_attention_heads * c_.head_dim;
    const int64_t kv = c_.num_key_value_heads * c_.head_dim;
    const int64_t matmul =
        c_.num_hidden_layers * (2 * h * q + 2 * h * kv + 3 * h * c_.intermediate_size) +
        h * c_.vocab_size;
    return 6.0 * static_cast<double>(matmul) +
           6.0 * static_cast<double>(c_.num_hidden_layers * q * sequence);
  }

  nlohmann::json config() const override;
  std::vector<std::pair<std::string, std::string>> summary() const override;

 private:
  LlamaConfig c_;
};

nlohmann::json Llama::config() const {
  nlohmann::json json = {{"architectures", {"LlamaForCausalLM"}},
                         {"model_type", "llama"},
                         {"vocab_size", c_.vocab_size},
                         {"hidden_size", c_.hidden_size},
                         {"num_hidden_layers", c_.num_hidden_layers},
                         {"num_attention_heads", c_.num_attention_heads},
                         {"num_key_value_heads", c_.num_key_value_heads},
                         {"head_dim", c_.head_dim},
                         {"intermediate_size", c_.intermediate_size},
                         {"max_position_embeddings", c_.max_position_embeddings},
                         {"rope_theta", c_.rope_theta},
                         {"rms_norm_eps", c_.rms_norm_eps},
                         {"hidden_act", "silu"},
                         {"attention_bias", false},
                         {"mlp_bias", false},
                         {"tie_word_embeddings", c_.tie_word_embeddings},
                         {"initializer_range", c_.initializer_range},
                         {"torch_dtype", "float32"}};
  if (c_.eos_token_id >= 0) json["bos_token_id"] = json["eos_token_id"] = c_.eos_token_id;
  return json;
}

std::vector<std::pair<std::string, std::string>> Llama::summary() const {
  const auto count = [](int64_t n) { return format_count(static_cast<uint64_t>(n)); };
  return {{"family", "llama"},
          {"layers", count(c_.num_hidden_layers)},
          {"hidden", count(c_.hidden_size)},
          {"heads", concat(c_.num_attention_heads, " query, ", c_.num_key_value_heads,
                           " key/value, of ", c_.head_dim)},
          {"feed-forward", count(c_.intermediate_size)},
          {"vocabulary", concat(count(c_.vocab_size), c_.tie_word_embeddings ? ", tied" : "")}};
}

}  // namespace

std::unique_ptr<LanguageModel> make_llama(const LlamaConfig& config) {
  return std::make_unique<Llama>(config);
}

std::unique_ptr<LanguageModel> llama_from_recipe(const Recipe& recipe, int64_t vocab) {
  LlamaConfig c;
  c.vocab_size = vocab;
  c.hidden_size = recipe.integer("model.hidden");
  c.num_hidden_layers = recipe.integer("model.layers");
  c.num_attention_heads = recipe.integer("model.heads");
  c.num_key_value_heads = recipe.integer("model.kv_heads");
  c.head_dim = recipe.integer("model.head_dim");
  c.intermediate_size = recipe.integer("model.ffn");
  c.max_position_embeddings = recipe.integer("model.max_positions");
  c.rope_theta = recipe.number("model.rope_theta");
  c.rms_norm_eps = recipe.number("model.norm_eps");
  c.tie_word_embeddings = recipe.flag("model.tie_embeddings");
  c.initializer_range = recipe.number("model.init_std");
  return make_llama(c);
}

std::unique_ptr<LanguageModel> llama_from_config(const nlohmann::json& json,
                                                 const std::string& origin) {
  // Keys that say nothing about the numbers of a forward pass.
  static const std::set<std::string> kHarmless = {
      "architectures", "model_type",     "bos_token_id",     "pad_token_id",
      "torch_dtype",   "dtype",          "use_cache",        "transformers_version",
      "_name_or_path", "pretraining_tp", "attention_dropout"};
  std::set<std::string> read = kHarmless;
  const auto get = [&]<class T>(const char* key, std::optional<T> absent) -> T {
    read.insert(key);
    const auto at = json.find(key);
    if (at == json.end() || at->is_null()) {
      TRIREME_CHECK(absent, origin, ": \"", key, "\" is missing");
      return *absent;
    }
    try {
      return at->get<T>();
    } catch (const nlohmann::json::exception&) {
      throw InputError(concat(origin, ": \"", key, "\" has the wrong type: ", at->dump()));
    }
  };
  const auto integer = [&](const char* key, std::optional<int64_t> absent = {}) {
    const int64_t value = get(key, absent);
    TRIREME_CHECK(value > 0 && value < (int64_t{1} << 40), origin, ": \"", key,
                  "\" must be positive, got ", value);
    return value;
  };
  const auto must_be = [&]<class T>(const char* key, T wanted) {
    const T value = get(key, std::optional<T>(wanted));
    TRIREME_CHECK(value == wanted, origin, ": \"", key, "\" = ", nlohmann::json(value).dump(),
                  " is not supported; expected ", nlohmann::json(wanted).dump());
  };
  LlamaConfig c;
  c.vocab_size = integer("vocab_size");
  c.hidden_size = integer("hidden_size");
  c.num_hidden_layers = integer("num_hidden_layers");
  c.num_attention_heads = integer("num_attention_heads");
  c.num_key_value_heads = integer("num_key_value_heads", c.num_attention_heads);
  c.head_dim = integer("head_dim", std::max<int64_t>(c.hidden_size / c.num_attention_heads, 1));
  c.intermediate_size = integer("intermediate_size");
  c.max_position_embeddings = integer("max_position_embeddings", 2048);
  c.rope_theta = get("rope_theta", std::optional(10000.0));
  c.rms_norm_eps = get("rms_norm_eps", std::optional(1e-6));
  c.tie_word_embeddings = get("tie_word_embeddings", std::optional(false));
  c.initializer_range = get("initializer_range", std::optional(0.02));
  must_be("hidden_act", std::string("silu"));
  must_be("attention_bias", false);
  must_be("mlp_bias", false);
  read.insert({"eos_token_id", "rope_scaling"});
  TRIREME_CHECK(!json.contains("rope_scaling") || json["rope_scaling"].is_null(), origin,
                ": \"rope_scaling\" is not supported");
  if (const auto eos = json.find("eos_token_id"); eos != json.end() && eos->is_number_integer())
    c.eos_token_id = eos->get<int64_t>();
  for (const auto& [key, value] : json.items())
    TRIREME_CHECK(read.contains(key), origin, ": \"", key, "\" is not known to the family llama");
  TRIREME_CHECK(c.num_attention_heads % c.num_key_value_heads == 0 && c.head_dim % 2 == 0, origin,
                ": ", c.num_attention_heads, " heads do not fit ", c.num_key_value_heads,
                " key/value heads of ", c.head_dim);
  return make_llama(c);
}

}  // namespace trireme
