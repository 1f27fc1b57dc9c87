#include "model/gpt2.h"

namespace trireme {
namespace {

DecoderSizes read_gpt2_sizes(ConfigReader& config) {
  DecoderSizes s{};
  s.vocab = config.size("vocab_size");
  s.hidden = config.size("n_embd");
  s.layers = config.size("n_layer");
  s.heads = s.kv_heads = config.size("n_head");
  s.feed_forward = config.size("n_inner", 4 * s.hidden);
  s.max_positions = config.size("n_positions", 1024);
  s.init_std = config.positive("initializer_range", 0.02);
  TRIREME_CHECK(s.hidden % s.heads == 0, config.where("n_embd"), " = ", s.hidden,
                " is no multiple of n_head = ", s.heads);
  s.head_dim = s.hidden / s.heads;
  check_sizes(s, config.where("n_embd"));
  return s;
}

}  // namespace

DecoderSpec read_gpt2(ConfigReader& config) {
  const DecoderSizes s = read_gpt2_sizes(config);
  const double eps = config.positive("layer_norm_epsilon", 1e-5);
  const bool tied = config.flag("tie_word_embeddings", true);
  const std::string act = config.text("activation_function", "gelu_new");
  TRIREME_CHECK(act == "gelu_new" || act == "gelu_pytorch_tanh",
                config.where("activation_function"), " = \"", shown_text(act),
                "\" is not supported; expected \"gelu_new\"");
  config.must_be("scale_attn_weights", true);
  config.must_be("scale_attn_by_inverse_layer_idx", false);
  for (const char* rate : {"attn_pdrop", "embd_pdrop", "resid_pdrop"}) config.dropout(rate);
  config.harmless({"n_ctx", "reorder_and_upcast_attn", "summary_activation",
                   "summary_first_dropout", "summary_proj_to_labels", "summary_type",
                   "summary_use_proj"});

  DecoderSpec spec{.family = "gpt2", .max_positions = s.max_positions};
  spec.embedding = {.tokens = "transformer.wte",
                    .vocab = s.vocab,
                    .hidden = s.hidden,
                    .init_std = s.init_std,
                    .positions = EmbeddingSpec::Positions{"transformer.wpe", s.max_positions}};
  const auto norm = [&](std::string name) {
    return NormSpec{NormSpec::Kind::layer, std::move(name), s.hidden, eps};
  };
  const auto linear = [](std::string name, int64_t in, int64_t out, double std) {
    return LinearSpec{.outputs = {{std::move(name), out}},
                      .inputs = in,
                      .init_std = std,
                      .bias = true,
                      .layout = kernel::WeightLayout::in_out};
  };
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string at = concat("transformer.h.", i, ".");
    LayerSpec layer{.name = concat("layer ", i)};
    layer.attention_norm = norm(at + "ln_1");
    layer.attention = {.qkv = linear(at + "attn.c_attn", s.hidden, 3 * s.hidden, s.init_std),
                       .out = linear(at + "attn.c_proj", s.hidden, s.hidden, s.out_std()),
                       .heads = s.heads,
                       .kv_heads = s.heads,
                       .head_dim = s.head_dim};
    layer.feed_forward_norm = norm(at + "ln_2");
    layer.feed_forward = {.unit = FeedForwardSpec::Unit::gelu,
                          .in = linear(at + "mlp.c_fc", s.hidden, s.feed_forward, s.init_std),
                          .out = linear(at + "mlp.c_proj", s.feed_forward, s.hidden, s.out_std())};
    spec.layers.push_back({std::move(layer), std::nullopt});
  }
  spec.head = {.norm = norm("transformer.ln_f"), .vocab = s.vocab, .init_std = s.init_std};
  if (!tied) spec.head.output = "lm_head";
  return spec;
}

}  // namespace trireme
