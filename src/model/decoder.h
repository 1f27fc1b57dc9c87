// A family of decoders as data: what its blocks are made of, and how positions rotate. Families
// (llama.cc, gemma.cc, …) turn a config.json into this; everything else follows from it.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/config_reader.h"
#include "model/language_model.h"
#include "model/rope_scaling.h"
#include "nn/decoder.h"

namespace trireme {

struct DecoderSpec {
  std::string family;
  int64_t max_positions = 0;
  EmbeddingSpec embedding;
  struct Layer {
    LayerSpec parts;             // without tables of RoPE
    std::optional<size_t> rope;  // among `ropes`
  };
  std::vector<Layer> layers;
  std::vector<RopeSpec> ropes;
  HeadSpec head;
};

// `config` is the config.json that the specification was read from.
std::unique_ptr<LanguageModel> make_decoder(DecoderSpec spec, nlohmann::json config);

// What every family reads alike, and the rules it is checked by.
struct DecoderSizes {
  int64_t vocab, hidden, layers, heads, kv_heads, head_dim, feed_forward, max_positions;
  double init_std;

  // Of projections into the residual stream: init_std / sqrt(2 layers), as GPT-2 and Megatron do.
  double out_std() const;
};

// Under the names that all but GPT-2 use; kv_heads is heads where it is absent. The defaults stand
// for an absent max_position_embeddings and head_dim; 0: hidden / heads.
DecoderSizes read_sizes(ConfigReader& config, int64_t default_positions, int64_t default_head_dim);
void check_sizes(const DecoderSizes& sizes, const std::string& origin);

// "layer_types", or where it is absent what is_local(layer) says: which layers see a window only.
std::vector<bool> read_local_layers(ConfigReader& config, int64_t layers,
                                    const std::function<bool(int64_t layer)>& is_local);

}  // namespace trireme
