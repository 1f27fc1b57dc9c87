// The shape that Llama gave: RMSNorm in front, rotary grouped-query attention, SwiGLU. Mistral,
// Qwen2 and Qwen3 are this with a window, biases, or norms of heads; Gemma begins with it.
#pragma once

#include "model/decoder.h"

namespace trireme {

struct LlamaStyle {
  DecoderSizes sizes;
  double norm_eps = 1e-6, norm_offset = 0;
  bool tied = false;
  bool qkv_bias = false, out_bias = false, mlp_bias = false, head_norm = false;
  std::vector<int64_t> windows;  // of each layer, 0: none; empty: none at all
  RopeSpec rope;
};

// With parameters under the names that these families share in transformers.
DecoderSpec llama_style(const std::string& family, const LlamaStyle& style);

// Reads sizes, rms_norm_eps, tie_word_embeddings, hidden_act (silu) and rotary positions.
LlamaStyle read_llama_style(ConfigReader& config, int64_t default_positions,
                            int64_t default_head_dim = 0);

DecoderSpec read_llama(ConfigReader& config);
DecoderSpec read_mistral(ConfigReader& config);
DecoderSpec read_qwen2(ConfigReader& config);
DecoderSpec read_qwen3(ConfigReader& config);

}  // namespace trireme
