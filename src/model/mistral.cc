// Mistral: Llama with a sliding window in all layers, or none.
#include "model/llama.h"

namespace trireme {

DecoderSpec read_mistral(ConfigReader& config) {
  LlamaStyle style = read_llama_style(config, 131072);
  // transformers takes 4096 for an absent key, and no window for null.
  if (!config.given("sliding_window") || config.find("sliding_window"))
    style.windows.assign(static_cast<size_t>(style.sizes.layers),
                         config.size("sliding_window", 4096));
  return llama_style("mistral", style);
}

}  // namespace trireme
