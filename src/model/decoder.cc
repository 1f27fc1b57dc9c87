#include "model/decoder.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/log.h"

namespace trireme {
namespace {

// Recipes and verbs take no longer ones; a config.json may say anything.
constexpr int64_t kMostPositions = int64_t{1} << 24;

class Decoder final : public LanguageModel {
 public:
  Decoder(DecoderSpec spec, nlohmann::json config)
      : spec_(std::move(spec)), config_(std::move(config)) {}

  Model build(at::ScalarType dtype, int64_t sequence) const override {
    TRIREME_CHECK(sequence <= kMostPositions, spec_.family, ": a sequence of ", sequence,
                  " tokens is longer than ", kMostPositions, ", the most that is supported");
    std::vector<kernel::RopeTables> tables;
    for (const RopeSpec& rope : spec_.ropes)
      tables.push_back(kernel::rope_tables(frequencies_of(rope, sequence),
                                           std::max(sequence, int64_t{1}), dtype,
                                           rope.attention_factor));
    Model model;
    model.nodes.push_back({make_embedding(spec_.embedding, sequence), {}, {"x0"}, {}});
    std::vector<std::string> values = {"x0"};
    for (size_t i = 0; i < spec_.layers.size(); ++i) {
      LayerSpec layer = spec_.layers[i].parts;
      if (spec_.layers[i].rope) layer.attention.rope = tables[*spec_.layers[i].rope];
      layer.attention.cache_layer = i;
      std::vector<std::string> next = {concat("x", i + 1), concat("delta", i + 1)};
      model.nodes.push_back({make_layer(layer, sequence, i == 0), values, next, {}});
      values = next;
    }
    model.nodes.push_back({make_head(spec_.head, sequence), values, {}, {}});
    return model;
  }

  nlohmann::json config() const override { return config_; }
  int64_t vocab() const override { return spec_.embedding.vocab; }
  int64_t max_positions() const override { return spec_.max_positions; }

  GenerationCache make_cache(at::ScalarType dtype, int64_t batch, int64_t capacity) const override {
    GenerationCache cache;
    for (const DecoderSpec::Layer& layer : spec_.layers) {
      const AttentionSpec& a = layer.parts.attention;
      const auto zeros = [&] {
        return at::zeros({batch, a.kv_heads, capacity, a.head_dim}, at::TensorOptions(dtype));
      };
      cache.layers.push_back({zeros(), zeros()});
    }
    cache.lengths = at::zeros({batch}, at::kLong);
    return cache;
  }

  double training_flops_per_token(int64_t sequence) const override {
    int64_t matmul = spec_.embedding.hidden * spec_.embedding.vocab;
    double attention = 0;
    for (const DecoderSpec::Layer& layer : spec_.layers) {
      matmul += matmul_parameters(layer.parts);
      attention += attention_flops(layer.parts.attention, sequence);
    }
    return 6.0 * static_cast<double>(matmul) + 3 * attention / static_cast<double>(sequence);
  }

  std::vector<std::pair<std::string, std::string>> summary() const override;

 private:
  DecoderSpec spec_;
  nlohmann::json config_;
};

std::vector<std::pair<std::string, std::string>> Decoder::summary() const {
  const auto count = [](int64_t n) { return format_count(static_cast<uint64_t>(n)); };
  const LayerSpec& layer = spec_.layers[0].parts;
  std::vector<std::pair<std::string, std::string>> facts = {
      {"family", spec_.family},
      {"layers", count(static_cast<int64_t>(spec_.layers.size()))},
      {"hidden", count(spec_.embedding.hidden)},
      {"heads", concat(layer.attention.heads, " query, ", layer.attention.kv_heads,
                       " key/value, of ", layer.attention.head_dim)},
      {"feed-forward", count(layer.feed_forward.width())},
      {"vocabulary", concat(count(spec_.embedding.vocab), spec_.head.output ? "" : ", tied")}};
  std::set<int64_t> windows;
  int64_t local = 0;
  for (const DecoderSpec::Layer& one : spec_.layers)
    if (const int64_t window = one.parts.attention.window; window > 0)
      ++local, windows.insert(window);
  for (const int64_t window : windows)
    facts.push_back({"window", concat(count(window), " tokens, in ", local, " layers")});
  return facts;
}

}  // namespace

std::unique_ptr<LanguageModel> make_decoder(DecoderSpec spec, nlohmann::json config) {
  return std::make_unique<Decoder>(std::move(spec), std::move(config));
}

double DecoderSizes::out_std() const {
  return init_std / std::sqrt(2.0 * static_cast<double>(layers));
}

void check_sizes(const DecoderSizes& s, const std::string& origin) {
  constexpr int64_t kMostLayers = 10000;
  TRIREME_CHECK(s.layers <= kMostLayers, origin, ": ", s.layers, " layers exceed ", kMostLayers);
  TRIREME_CHECK(s.heads % s.kv_heads == 0, origin, ": ", s.heads,
                " attention heads are no multiple of ", s.kv_heads, " key/value heads");
  const auto most = [&](int64_t width) {
    constexpr double kMostWeights = 1ll << 44;
    TRIREME_CHECK(static_cast<double>(width) * static_cast<double>(s.hidden) <= kMostWeights,
                  origin, ": a matrix of ", width, " x ", s.hidden, " exceeds 2^44 weights");
  };
  TRIREME_CHECK(s.head_dim <= (1ll << 16) && s.heads <= (1ll << 24), origin, ": ", s.heads,
                " heads of ", s.head_dim, " are too large");
  most(s.vocab);
  most(2 * s.feed_forward);
  most((s.heads + 2 * s.kv_heads) * s.head_dim);
  // Sums of bytes in int64 hold: 2^50 weights are a thousand times the largest published model.
  const double each =
      static_cast<double>(2 * s.heads + 2 * s.kv_heads) * static_cast<double>(s.head_dim) +
      3 * static_cast<double>(s.feed_forward);
  TRIREME_CHECK((2 * static_cast<double>(s.vocab) + static_cast<double>(s.max_positions) +
                 static_cast<double>(s.layers) * each) *
                        static_cast<double>(s.hidden) <=
                    static_cast<double>(1ll << 50),
                origin, ": the model exceeds 2^50 weights");
}

DecoderSizes read_sizes(ConfigReader& config, int64_t default_positions, int64_t default_head_dim) {
  DecoderSizes s{};
  s.vocab = config.size("vocab_size");
  s.hidden = config.size("hidden_size");
  s.layers = config.size("num_hidden_layers");
  s.heads = config.size("num_attention_heads");
  s.kv_heads = config.size("num_key_value_heads", s.heads);
  s.head_dim =
      config.size("head_dim", default_head_dim > 0 ? default_head_dim
                                                   : std::max<int64_t>(s.hidden / s.heads, 1));
  s.feed_forward = config.size("intermediate_size");
  s.max_positions = config.size("max_position_embeddings", default_positions);
  s.init_std = config.positive("initializer_range", 0.02);
  check_sizes(s, config.where("hidden_size"));
  TRIREME_CHECK(s.head_dim % 2 == 0, config.where("head_dim"), " = ", s.head_dim,
                " is odd; rotary positions need an even width of a head");
  return s;
}

std::vector<bool> read_local_layers(ConfigReader& config, int64_t layers,
                                    const std::function<bool(int64_t layer)>& is_local) {
  std::vector<bool> local;
  const nlohmann::json* types = config.find("layer_types");
  if (!types) {
    for (int64_t i = 0; i < layers; ++i) local.push_back(is_local(i));
    return local;
  }
  TRIREME_CHECK(types->is_array() && types->size() == static_cast<size_t>(layers),
                config.where("layer_types"), " must be a list of ", layers, " types, one a layer");
  for (const nlohmann::json& type : *types) {
    TRIREME_CHECK(type == "sliding_attention" || type == "full_attention",
                  config.where("layer_types"), " holds ", shown_value(type),
                  "; expected \"full_attention\" or \"sliding_attention\"");
    local.push_back(type == "sliding_attention");
  }
  return local;
}

}  // namespace trireme
