#include "model/language_model.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/decoder.h"
#include "model/gemma.h"
#include "model/gpt2.h"
#include "model/llama.h"

namespace trireme {
namespace {

using nlohmann::json;

struct Family {
  std::string_view name;        // of model.family
  std::string_view model_type;  // of config.json
  std::string_view architecture;
  DecoderSpec (*read)(ConfigReader& config);
  // What the family's config.json says beside, or instead of, what all say.
  json (*own_keys)(const Recipe& recipe);
};

json window_or_null(const Recipe& recipe) {
  return recipe.has("model.window") ? json(recipe.integer("model.window")) : json();
}

json gemma_keys(const Recipe& recipe) {
  json keys = {{"hidden_activation", "gelu_pytorch_tanh"},
               {"query_pre_attn_scalar", recipe.integer("model.head_dim")},
               {"attention_bias", false},
               {"hidden_act", nullptr}};
  if (recipe.has("model.window")) keys["sliding_window"] = recipe.integer("model.window");
  return keys;
}

// GPT-2's config.json has names of its own for all of it.
json gpt2_keys(const Recipe& recipe) {
  return {{"n_embd", recipe.integer("model.hidden")},
          {"n_layer", recipe.integer("model.layers")},
          {"n_head", recipe.integer("model.heads")},
          {"n_inner", recipe.integer("model.ffn")},
          {"n_positions", recipe.integer("model.max_positions")},
          {"layer_norm_epsilon", recipe.number("model.norm_eps")},
          {"activation_function", "gelu_new"},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0},
          {"hidden_size", nullptr},
          {"num_hidden_layers", nullptr},
          {"num_attention_heads", nullptr},
          {"intermediate_size", nullptr},
          {"max_position_embeddings", nullptr},
          {"rms_norm_eps", nullptr},
          {"hidden_act", nullptr}};
}

constexpr Family kFamilies[] = {
    {"llama", "llama", "LlamaForCausalLM", read_llama,
     [](const Recipe&) { return json{{"attention_bias", false}, {"mlp_bias", false}}; }},
    {"qwen2", "qwen2", "Qwen2ForCausalLM", read_qwen2,
     [](const Recipe&) {  // whose heads are hidden / heads wide
       return json{{"use_sliding_window", false}};
     }},
    {"qwen3", "qwen3", "Qwen3ForCausalLM", read_qwen3,
     [](const Recipe&) { return json{{"use_sliding_window", false}, {"attention_bias", false}}; }},
    {"mistral", "mistral", "MistralForCausalLM", read_mistral,
     [](const Recipe& recipe) { return json{{"sliding_window", window_or_null(recipe)}}; }},
    {"gemma2", "gemma2", "Gemma2ForCausalLM", read_gemma2, gemma_keys},
    {"gemma3", "gemma3_text", "Gemma3ForCausalLM", read_gemma3, gemma_keys},
    {"gpt2", "gpt2", "GPT2LMHeadModel", read_gpt2, gpt2_keys},
};

const Family& family(std::string_view Family::* by, std::string_view name,
                     const std::string& where) {
  std::string known;
  for (const Family& f : kFamilies) {
    if (f.*by == name) return f;
    known += concat(known.empty() ? "" : ", ", f.*by);
  }
  throw InputError(
      concat(where, ": the model family '", shown_text(name), "' is not known; there is ", known));
}

std::unique_ptr<LanguageModel> from_config(const Family& family, const json& config,
                                           const std::string& origin) {
  ConfigReader reader(config, origin, std::string(family.name));
  DecoderSpec spec = family.read(reader);
  reader.finish();
  return make_decoder(std::move(spec), config);
}

}  // namespace

std::unique_ptr<LanguageModel> make_language_model(const Recipe& recipe, int64_t vocab) {
  const Family& f =
      family(&Family::name, recipe.text("model.family"), recipe.where("model.family"));
  json config = {{"architectures", json::array({f.architecture})},
                 {"model_type", f.model_type},
                 {"vocab_size", vocab},
                 {"hidden_size", recipe.integer("model.hidden")},
                 {"num_hidden_layers", recipe.integer("model.layers")},
                 {"num_attention_heads", recipe.integer("model.heads")},
                 {"intermediate_size", recipe.integer("model.ffn")},
                 {"max_position_embeddings", recipe.integer("model.max_positions")},
                 {"rms_norm_eps", recipe.number("model.norm_eps")},
                 {"hidden_act", "silu"},
                 {"tie_word_embeddings", recipe.flag("model.tie_embeddings")},
                 {"initializer_range", recipe.number("model.init_std")},
                 {"torch_dtype", "float32"}};
  if (recipe.has("model.kv_heads")) {
    config["num_key_value_heads"] = recipe.integer("model.kv_heads");
    config["head_dim"] = recipe.integer("model.head_dim");
    config["rope_theta"] = recipe.number("model.rope_theta");
  }
  config.update(f.own_keys(recipe));
  std::erase_if(config.get_ref<json::object_t&>(), [](const auto& entry) {
    return entry.second.is_null() && entry.first != "sliding_window";
  });
  return from_config(f, config, recipe.path().string());
}

std::unique_ptr<LanguageModel> load_language_model(const json& config, const std::string& origin) {
  TRIREME_CHECK(
      config.is_object() && config.contains("model_type") && config["model_type"].is_string(),
      origin, ": expected a JSON object with a \"model_type\"");
  return from_config(family(&Family::model_type, config["model_type"].get<std::string>(), origin),
                     config, origin);
}

}  // namespace trireme
