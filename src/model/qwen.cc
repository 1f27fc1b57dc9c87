// Qwen2 and Qwen3: Llama with biases on q, k and v, or with norms of heads; both may give the upper
// layers a sliding window.
#include "model/llama.h"

namespace trireme {
namespace {

// Layers from max_window_layers on are local, and only if use_sliding_window says so.
void read_windows(ConfigReader& config, LlamaStyle& style) {
  const bool use = config.flag("use_sliding_window", false);
  const int64_t window = config.size("sliding_window", config.given("sliding_window") ? 0 : 4096);
  const nlohmann::json* from = config.find("max_window_layers");
  const int64_t first = from && *from == 0 ? 0 : config.size("max_window_layers", 28);
  const std::vector<bool> local = read_local_layers(
      config, style.sizes.layers, [&](int64_t layer) { return use && layer >= first; });
  for (const bool one : local) style.windows.push_back(one && use ? window : 0);
}

}  // namespace

DecoderSpec read_qwen2(ConfigReader& config) {
  LlamaStyle style = read_llama_style(config, 32768);
  style.qkv_bias = true;
  read_windows(config, style);
  return llama_style("qwen2", style);
}

DecoderSpec read_qwen3(ConfigReader& config) {
  LlamaStyle style = read_llama_style(config, 32768, 128);
  style.qkv_bias = style.out_bias = config.flag("attention_bias", false);
  style.head_norm = true;
  read_windows(config, style);
  return llama_style("qwen3", style);
}

}  // namespace trireme
