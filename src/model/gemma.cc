#include "model/gemma.h"

#include <cmath>

#include "model/llama.h"

namespace trireme {
namespace {

struct Gemma {
  LlamaStyle style;  // with the global layers' RoPE
  RopeSpec local_rope;
  std::vector<bool> local;  // of each layer
  double scale = 0;         // of the scores
  double score_cap = 0, logit_cap = 0;
};

// What both read alike. A cap of null is none, and so is a window of null. Every `pattern`-th layer
// is global.
Gemma read(ConfigReader& config, int64_t default_positions, double default_score_cap,
           double default_logit_cap, int64_t pattern) {
  Gemma g{.style = {.sizes = read_sizes(config, default_positions, 256)}};
  g.style.norm_eps = config.positive("rms_norm_eps", 1e-6);
  g.style.norm_offset = 1;
  g.style.tied = config.flag("tie_word_embeddings", true);
  g.style.qkv_bias = g.style.out_bias = config.flag("attention_bias", false);
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

  const int64_t window = config.size("sliding_window", config.given("sliding_window") ? 0 : 4096);
  g.local = read_local_layers(config, g.style.sizes.layers,
                              [&](int64_t layer) { return (layer + 1) % pattern != 0; });
  for (const bool local : g.local) g.style.windows.push_back(local ? window : 0);
  return g;
}

DecoderSpec spec_of(const std::string& family, const Gemma& g) {
  DecoderSpec spec = llama_style(family, g.style);
  spec.embedding.scale = std::sqrt(static_cast<double>(g.style.sizes.hidden));
  spec.ropes.push_back(g.local_rope);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    LayerSpec& layer = spec.layers[i].parts;
    spec.layers[i].rope = g.local[i] ? 1 : 0;
    const auto norm = [i, like = layer.attention_norm](const char* name) {
      NormSpec one = like;
      one.name = concat("model.layers.", i, ".", name);
      return one;
    };
    layer.attention.scale = g.scale;
    layer.attention.softcap = g.score_cap;
    layer.attention_post_norm = norm("post_attention_layernorm");
    layer.feed_forward_norm = norm("pre_feedforward_layernorm");
    layer.feed_forward.unit = FeedForwardSpec::Unit::geglu;
    layer.feed_forward_post_norm = norm("post_feedforward_layernorm");
  }
  spec.head.softcap = g.logit_cap;
  return spec;
}

}  // namespace

DecoderSpec read_gemma2(ConfigReader& config) {
  Gemma g = read(config, 8192, 50, 30, 2);
  const DecoderSizes& s = g.style.sizes;
  g.style.rope = g.local_rope = read_rope(config, s.head_dim, s.max_positions);
  return spec_of("gemma2", g);
}

// Scaling of RoPE is for the global layers; the local ones have a base of their own.
DecoderSpec read_gemma3(ConfigReader& config) {
  const int64_t pattern =
      config.size("sliding_window_pattern", config.size("_sliding_window_pattern", 6));
  Gemma g = read(config, 131072, 0, 0, pattern);
  g.style.head_norm = true;
  config.must_be("use_bidirectional_attention", false);
  const int64_t width = g.style.sizes.head_dim, positions = g.style.sizes.max_positions;
  g.style.rope = read_rope(config, width, positions, 1e6, "full_attention");
  const double local_theta = config.positive("rope_local_base_freq", 1e4);
  g.local_rope = config.find("rope_parameters")
                     ? read_rope(config, width, positions, 1e4, "sliding_attention")
                     : RopeSpec{.theta = local_theta, .rotary_dim = width};
  return spec_of("gemma3_text", g);
}

}  // namespace trireme
