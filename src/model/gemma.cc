#include "model/gemma.h"

#include <cmath>

namespace trireme {
namespace {

struct Gemma {
  DecoderSizes sizes;
  double norm_eps = 1e-6;
  bool tied = true, bias = false, head_norm = false;
  double scale = 0;  // of the scores
  double score_cap = 0, logit_cap = 0;
  std::vector<bool> local;  // of each layer
  int64_t window = 0;       // of the local ones
  RopeSpec global_rope, local_rope;
};

// What both read alike. A cap of null is none.
Gemma read(ConfigReader& config, int64_t default_positions, double default_score_cap,
           double default_logit_cap) {
  Gemma g{.sizes = read_sizes(config, default_positions, 256)};
  g.norm_eps = config.positive("rms_norm_eps", 1e-6);
  g.tied = config.flag("tie_word_embeddings", true);
  g.bias = config.flag("attention_bias", false);
  g.scale = 1 / std::sqrt(config.positive("query_pre_attn_scalar", 256));
  const auto cap = [&](const char* key, double absent) {
    return config.given(key) && !config.find(key) ? 0 : config.positive(key, absent);
  };
  g.score_cap = cap("attn_logit_softcapping", default_score_cap);
  g.logit_cap = cap("final_logit_softcapping", default_logit_cap);
  config.must_be("hidden_activation", std::string("gelu_pytorch_tanh"));
  // Older files carry this name too; transformers reads the other one.
  config.harmless({"hidden_act", "cache_implementation"});
  config.dropout("attention_dropout");
  return g;
}

// Every `pattern`-th layer is global.
void set_windows(ConfigReader& config, int64_t pattern, Gemma& g) {
  const int64_t window = config.size("sliding_window", config.given("sliding_window") ? 0 : 4096);
  g.local = read_local_layers(
      config, g.sizes.layers, [](int64_t layer, int64_t every) { return (layer + 1) % every != 0; },
      pattern);
  g.window = window;
}

DecoderSpec spec_of(const std::string& family, const Gemma& g) {
  const DecoderSizes& s = g.sizes;
  DecoderSpec spec{.family = family, .max_positions = s.max_positions};
  spec.embedding = {.tokens = "model.embed_tokens",
                    .vocab = s.vocab,
                    .hidden = s.hidden,
                    .scale = std::sqrt(static_cast<double>(s.hidden)),
                    .init_std = s.init_std};
  const auto norm = [&](std::string name, int64_t width) {
    return NormSpec{.name = std::move(name), .width = width, .eps = g.norm_eps, .offset = 1};
  };
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string at = concat("model.layers.", i, "."), attention = at + "self_attn.";
    const std::string mlp = at + "mlp.";
    const bool local = g.local[static_cast<size_t>(i)];
    LayerSpec layer{.name = concat("layer ", i)};
    layer.attention_norm = norm(at + "input_layernorm", s.hidden);
    layer.attention = {.qkv = {.outputs = {{attention + "q_proj", s.heads * s.head_dim},
                                           {attention + "k_proj", s.kv_heads * s.head_dim},
                                           {attention + "v_proj", s.kv_heads * s.head_dim}},
                               .inputs = s.hidden,
                               .init_std = s.init_std,
                               .bias = g.bias},
                       .out = {.outputs = {{attention + "o_proj", s.hidden}},
                               .inputs = s.heads * s.head_dim,
                               .init_std = s.out_std(),
                               .bias = g.bias},
                       .heads = s.heads,
                       .kv_heads = s.kv_heads,
                       .head_dim = s.head_dim,
                       .scale = g.scale,
                       .window = local ? g.window : 0,
                       .softcap = g.score_cap};
    if (g.head_norm)
      layer.attention.head_norm = {norm(attention + "q_norm", s.head_dim),
                                   norm(attention + "k_norm", s.head_dim)};
    layer.attention_post_norm = norm(at + "post_attention_layernorm", s.hidden);
    layer.feed_forward_norm = norm(at + "pre_feedforward_layernorm", s.hidden);
    layer.feed_forward = {
        .unit = FeedForwardSpec::Unit::geglu,
        .in = {.outputs = {{mlp + "gate_proj", s.feed_forward}, {mlp + "up_proj", s.feed_forward}},
               .inputs = s.hidden,
               .init_std = s.init_std},
        .out = {.outputs = {{mlp + "down_proj", s.hidden}},
                .inputs = s.feed_forward,
                .init_std = s.out_std()}};
    layer.feed_forward_post_norm = norm(at + "post_feedforward_layernorm", s.hidden);
    spec.layers.push_back({std::move(layer), local ? 1 : 0});
  }
  spec.ropes = {g.global_rope, g.local_rope};
  spec.head = {.norm = norm("model.norm", s.hidden),
               .vocab = s.vocab,
               .init_std = s.init_std,
               .softcap = g.logit_cap};
  if (!g.tied) spec.head.output = "lm_head";
  return spec;
}

}  // namespace

DecoderSpec read_gemma2(ConfigReader& config) {
  Gemma g = read(config, 8192, 50, 30);
  set_windows(config, 2, g);
  g.global_rope = g.local_rope = read_rope(config, g.sizes.head_dim, g.sizes.max_positions);
  return spec_of("gemma2", g);
}

DecoderSpec read_gemma3(ConfigReader& config) {
  Gemma g = read(config, 131072, 0, 0);
  g.head_norm = true;
  config.must_be("use_bidirectional_attention", false);
  const int64_t pattern =
      config.size("sliding_window_pattern", config.size("_sliding_window_pattern", 6));
  set_windows(config, pattern, g);
  // Scaling is for the global layers; the local ones have a base of their own.
  const int64_t positions = g.sizes.max_positions, width = g.sizes.head_dim;
  g.global_rope = read_rope(config, width, positions, 1e6, "full_attention");
  const double local_theta = config.positive("rope_local_base_freq", 1e4);
  if (config.find("rope_parameters"))
    g.local_rope = read_rope(config, width, positions, 1e4, "sliding_attention");
  else g.local_rope = {.theta = local_theta, .rotary_dim = width};
  return spec_of("gemma3_text", g);
}

}  // namespace trireme
