#include "model/language_model.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/llama.h"

namespace trireme {
namespace {

struct Family {
  std::string_view name;  // of model.family and of config.json's model_type
  std::unique_ptr<LanguageModel> (*from_recipe)(const Recipe& recipe, int64_t vocab);
  std::unique_ptr<LanguageModel> (*from_config)(const nlohmann::json& config,
                                                const std::string& origin);
};

constexpr Family kFamilies[] = {
    {"llama", llama_from_recipe, llama_from_config},
};

const Family& family(std::string_view name, const std::string& where) {
  std::string known;
  for (const Family& f : kFamilies) {
    if (f.name == name) return f;
    known += concat(known.empty() ? "" : ", ", f.name);
  }
  throw InputError(concat(where, ": the model family '", name, "' is not known; there is ", known));
}

}  // namespace

std::unique_ptr<LanguageModel> make_language_model(const Recipe& recipe, int64_t vocab) {
  return family(recipe.text("model.family"), recipe.where("model.family"))
      .from_recipe(recipe, vocab);
}

std::unique_ptr<LanguageModel> load_language_model(const nlohmann::json& config,
                                                   const std::string& origin) {
  TRIREME_CHECK(
      config.is_object() && config.contains("model_type") && config["model_type"].is_string(),
      origin, ": expected a JSON object with a \"model_type\"");
  return family(config["model_type"].get<std::string>(), origin).from_config(config, origin);
}

}  // namespace trireme
