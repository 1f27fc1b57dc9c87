#include "model/llama.h"

namespace trireme {

DecoderSpec llama_style(const std::string& family, const LlamaStyle& style) {
  const DecoderSizes& s = style.sizes;
  DecoderSpec spec{.family = family, .max_positions = s.max_positions};
  spec.embedding = {
      .tokens = "model.embed_tokens", .vocab = s.vocab, .hidden = s.hidden, .init_std = s.init_std};
  const auto norm = [&](std::string name, int64_t width) {
    return NormSpec{.name = std::move(name),
                    .width = width,
                    .eps = style.norm_eps,
                    .offset = style.norm_offset};
  };
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string at = concat("model.layers.", i, "."), attention = at + "self_attn.";
    const std::string mlp = at + "mlp.";
    LayerSpec layer{.name = concat("layer ", i)};
    layer.attention_norm = norm(at + "input_layernorm", s.hidden);
    layer.attention = {.qkv = {.outputs = {{attention + "q_proj", s.heads * s.head_dim},
                                           {attention + "k_proj", s.kv_heads * s.head_dim},
                                           {attention + "v_proj", s.kv_heads * s.head_dim}},
                               .inputs = s.hidden,
                               .init_std = s.init_std,
                               .bias = style.qkv_bias},
                       .out = {.outputs = {{attention + "o_proj", s.hidden}},
                               .inputs = s.heads * s.head_dim,
                               .init_std = s.out_std(),
                               .bias = style.out_bias},
                       .heads = s.heads,
                       .kv_heads = s.kv_heads,
                       .head_dim = s.head_dim};
    if (style.head_norm)
      layer.attention.head_norm = {norm(attention + "q_norm", s.head_dim),
                                   norm(attention + "k_norm", s.head_dim)};
    if (!style.windows.empty()) layer.attention.window = style.windows[static_cast<size_t>(i)];
    layer.feed_forward_norm = norm(at + "post_attention_layernorm", s.hidden);
    layer.feed_forward = {
        .unit = FeedForwardSpec::Unit::swiglu,
        .in = {.outputs = {{mlp + "gate_proj", s.feed_forward}, {mlp + "up_proj", s.feed_forward}},
               .inputs = s.hidden,
               .init_std = s.init_std,
               .bias = style.mlp_bias},
        .out = {.outputs = {{mlp + "down_proj", s.hidden}},
                .inputs = s.feed_forward,
                .init_std = s.out_std(),
                .bias = style.mlp_bias}};
    spec.layers.push_back({std::move(layer), 0});
  }
  spec.ropes = {style.rope};
  spec.head = {.norm = norm("model.norm", s.hidden), .vocab = s.vocab, .init_std = s.init_std};
  if (!style.tied) spec.head.output = "lm_head";
  return spec;
}

LlamaStyle read_llama_style(ConfigReader& config, int64_t default_positions,
                            int64_t default_head_dim) {
  LlamaStyle style{.sizes = read_sizes(config, default_positions, default_head_dim)};
  style.norm_eps = config.positive("rms_norm_eps", 1e-6);
  style.tied = config.flag("tie_word_embeddings", false);
  style.rope = read_rope(config, style.sizes.head_dim, style.sizes.max_positions);
  config.must_be("hidden_act", std::string("silu"));
  config.dropout("attention_dropout");
  return style;
}

DecoderSpec read_llama(ConfigReader& config) {
  LlamaStyle style = read_llama_style(config, 2048);
  style.qkv_bias = style.out_bias = config.flag("attention_bias", false);
  style.mlp_bias = config.flag("mlp_bias", false);
  return llama_style("llama", style);
}

}  // namespace trireme
