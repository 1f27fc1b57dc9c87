#include "model/language_model.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/test_mutation.h"

namespace trireme {
namespace {

using nlohmann::json;

json sizes(const char* type, int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads,
           int64_t feed_forward, int64_t vocab, bool tied) {
  return {{"model_type", type},
          {"hidden_size", hidden},
          {"num_hidden_layers", layers},
          {"num_attention_heads", heads},
          {"num_key_value_heads", kv_heads},
          {"intermediate_size", feed_forward},
          {"vocab_size", vocab},
          {"max_position_embeddings", 8192},
          {"tie_word_embeddings", tied}};
}

std::unique_ptr<LanguageModel> load(const json& config) {
  return load_language_model(config, "config.json");
}

// As the releases' cards state them.
TEST(LanguageModel, ParameterCountsOfReleases) {
  json qwen3 = sizes("qwen3", 1024, 28, 16, 8, 3072, 151936, true);
  qwen3["head_dim"] = 128;
  const std::pair<json, int64_t> releases[] = {
      {{{"model_type", "gpt2"},
        {"n_embd", 768},
        {"n_layer", 12},
        {"n_head", 12},
        {"vocab_size", 50257}},
       124'439'808},
      {sizes("llama", 2048, 16, 32, 8, 8192, 128256, true), 1'235'814'400},
      {sizes("llama", 4096, 32, 32, 8, 14336, 128256, false), 8'030'261'248},
      {sizes("mistral", 4096, 32, 32, 8, 14336, 32000, false), 7'241'732'096},
      {sizes("qwen2", 896, 24, 14, 2, 4864, 151936, true), 494'032'768},
      {qwen3, 596'049'920},
  };
  for (const auto& [config, count] : releases)
    EXPECT_EQ(load(config)->build(at::kFloat, 1).parameter_count(), count) << config.dump();
}

// 6 x 7,504,658,432 matmul parameters, and 6 L N D S for causal attention.
TEST(LanguageModel, FlopsOfLlama8B) {
  const auto llama = load(sizes("llama", 4096, 32, 32, 8, 14336, 128256, false));
  EXPECT_EQ(llama->training_flops_per_token(8192), 51'470'401'536.0);
  // With attention counted in full, as others have it: the causal half at twice the length.
  EXPECT_EQ(llama->training_flops_per_token(2 * 8192), 57'912'852'480.0);
}

// What the blocks say they execute is what the convention counts: forward is a third of it.
TEST(LanguageModel, BlocksCostWhatTheConventionCounts) {
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text"}) {
    json config = sizes(type, 64, 6, 4, 2, 96, 131, true);
    if (std::string_view(type) != "llama") config["sliding_window"] = 16;
    const auto family = load(config);
    EXPECT_NEAR(family->build(at::kFloat, 48).forward_flops() * 3 / 48 /
                    family->training_flops_per_token(48),
                1, 1e-12)
        << type;
  }
}

std::string error_of(const json& config) {
  try {
    load(config);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(LanguageModel, RefusesConfigurationsByTheirKeys) {
  const json good = sizes("llama", 64, 2, 4, 2, 96, 131, true);
  const auto with = [&](const char* key, json value) {
    json config = good;
    config[key] = std::move(value);
    return error_of(config);
  };
  EXPECT_EQ(error_of(good), "no error");
  EXPECT_EQ(with("model_type", "mamba"),
            "config.json: the model family 'mamba' is not known; there is llama, qwen2, qwen3, "
            "mistral, gemma2, gemma3_text, gpt2");
  EXPECT_EQ(with("spiral", 3), "config.json: \"spiral\" is not known to the family llama");
  EXPECT_EQ(with("sliding_window", 3),
            "config.json: \"sliding_window\" is not known to the family llama");
  EXPECT_EQ(with("hidden_size", "64"),
            "config.json: \"hidden_size\" has the wrong type: \"64\"; expected an integer");
  EXPECT_EQ(with("hidden_size", -64),
            "config.json: \"hidden_size\" must be a size of at least 1, got -64");
  EXPECT_EQ(with("vocab_size", uint64_t{1} << 60),
            "config.json: \"vocab_size\" must be a size of at least 1, got 1152921504606846976");
  EXPECT_EQ(with("vocab_size", nullptr), "config.json: \"vocab_size\" is missing");
  EXPECT_EQ(with("num_key_value_heads", 3),
            "config.json: \"hidden_size\": 4 attention heads are no multiple of 3 key/value heads");
  EXPECT_EQ(with("head_dim", 7),
            "config.json: \"head_dim\" = 7 is odd; rotary positions need an even width of a head");
  EXPECT_EQ(with("rms_norm_eps", 0), "config.json: \"rms_norm_eps\" must be above 0, got 0");
  EXPECT_EQ(with("hidden_act", "gelu"),
            "config.json: \"hidden_act\" = \"gelu\" is not supported; expected \"silu\"");
  EXPECT_EQ(with("is_encoder_decoder", true),
            "config.json: \"is_encoder_decoder\" = true is not supported");
  EXPECT_EQ(with("intermediate_size", int64_t{1} << 32),
            "no error");  // large, and its matrix still counts
  json wide = good;
  wide["intermediate_size"] = int64_t{1} << 32;
  wide["hidden_size"] = int64_t{1} << 32;
  EXPECT_NE(error_of(wide), "no error");
}

TEST(LanguageModel, RefusesSequencesThatNoTableHolds) {
  json config = sizes("llama", 64, 2, 4, 2, 96, 131, true);
  config["max_position_embeddings"] = int64_t{1} << 32;
  const auto family = load(config);
  EXPECT_THROW(family->build(at::kFloat, family->max_positions()), InputError);
}

TEST(LanguageModel, LayerTypesWin) {
  json config = sizes("gemma2", 64, 2, 4, 2, 96, 131, true);
  config["layer_types"] = {"full_attention", "chunked_attention"};
  EXPECT_EQ(error_of(config),
            "config.json: \"layer_types\" holds \"chunked_attention\"; expected \"full_attention\" "
            "or \"sliding_attention\"");
  config["layer_types"] = {"full_attention"};
  EXPECT_EQ(error_of(config),
            "config.json: \"layer_types\" must be a list of 2 types, one a layer");
}

// Whatever a config.json says, it is a model of a bounded size or a refusal.
void survive_damaged_configs(uint64_t seed, uint64_t count) {
  std::vector<std::string> configs;
  for (const char* type : {"llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text"}) {
    json config = sizes(type, 64, 2, 4, 2, 96, 131, true);
    if (std::string_view(type) != "llama")
      config["layer_types"] = {"full_attention", "full_attention"};
    if (std::string_view(type) == "llama")
      config["rope_scaling"] = {{"rope_type", "llama3"},
                                {"factor", 8.0},
                                {"low_freq_factor", 1.0},
                                {"high_freq_factor", 4.0},
                                {"original_max_position_embeddings", 64}};
    if (std::string_view(type) == "qwen3")
      config["rope_parameters"] = {{"rope_type", "yarn"}, {"rope_theta", 1e6}, {"factor", 4.0}};
    configs.push_back(config.dump());
  }
  configs.push_back(
      R"({"model_type": "gpt2", "n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 99})");
  testing::survive(seed, count, [&](testing::Mutator& mutator) {
    const std::string text = mutator.either(configs[mutator.below(configs.size())]);
    load(parse_json<json>(text, "config.json"))->build(at::kFloat, 1);
  });
}

TEST(LanguageModel, SurvivesDamagedConfigs) { survive_damaged_configs(1, 3000); }

TEST(LongLanguageModel, SurvivesManyDamagedConfigs) { survive_damaged_configs(2, 100'000); }

}  // namespace
}  // namespace trireme
