// Llama: RMSNorm, rotary positions, grouped-query attention, SwiGLU. Hugging Face's
// LlamaForCausalLM.
#pragma once

#include "model/language_model.h"

namespace trireme {

// Names as in config.json. H hidden, N query heads, K key/value heads, D head width, F feed-forward
// width.
struct LlamaConfig {
  int64_t vocab_size = 0, hidden_size = 0, num_hidden_layers = 0;
  int64_t num_attention_heads = 0, num_key_value_heads = 0, head_dim = 0;
  int64_t intermediate_size = 0, max_position_embeddings = 0;
  double rope_theta = 10000, rms_norm_eps = 1e-5;
  bool tie_word_embeddings = false;
  double initializer_range =
      0.02;  // out projections: divided by sqrt(2 layers), as GPT-2 and Megatron do
  int64_t eos_token_id = -1;  // -1: not said
};

std::unique_ptr<LanguageModel> make_llama(const LlamaConfig& config);
std::unique_ptr<LanguageModel> llama_from_recipe(const Recipe& recipe, int64_t vocab);
std::unique_ptr<LanguageModel> llama_from_config(const nlohmann::json& config,
                                                 const std::string& origin);

}  // namespace trireme
