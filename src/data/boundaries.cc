#include "data/boundaries.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace trireme {
namespace {

using json = nlohmann::json;

// A token of tokenizer_config.json: a text, or an object with its "content". "" if there is none.
std::string named_token(const json& config, const char* key, const Tokenizer& tokenizer,
                        const std::string& origin) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return "";
  const json* content = &*found;
  if (found->is_object() && found->contains("content")) content = &found->at("content");
  TRIREME_CHECK(content->is_string(), origin, ": \"", key, "\" must be a token, found ",
                found->dump().substr(0, 80));
  const std::string token = content->get<std::string>();
  TRIREME_CHECK(tokenizer.id_of(token), origin, ": \"", key, "\" is ", token,
                ", which tokenizer.json lacks");
  return token;
}

// What the tokenizer's class does when the file does not say.
bool class_adds_bos(const json& config) {
  static constexpr std::string_view kClasses[] = {"LlamaTokenizer",         "LlamaTokenizerFast",
                                                  "CodeLlamaTokenizer",     "GemmaTokenizer",
                                                  "CodeLlamaTokenizerFast", "GemmaTokenizerFast"};
  const auto name = config.find("tokenizer_class");
  return name != config.end() && name->is_string() &&
         std::ranges::find(kClasses, name->get<std::string>()) != std::end(kClasses);
}

std::string post_processor_begin(const Tokenizer& tokenizer, const std::string& origin) {
  const auto prefix = tokenizer.prefix();
  TRIREME_CHECK(prefix.size() <= 1, origin, ": the post-processor puts ", prefix.size(),
                " tokens before a text, and one is the most that is supported",
                "\nnext: say in tokenizer_config.json which it is, by \"add_bos_token\" and "
                "\"bos_token\"");
  return prefix.empty() ? "" : std::string(tokenizer.token_of(prefix[0]));
}

}  // namespace

Boundaries boundaries_of(const Tokenizer& tokenizer, std::string_view text,
                         const std::string& origin) {
  const json config = text.empty() ? json::object() : parse_json<json>(text, origin);
  TRIREME_CHECK(config.is_object(), origin, " is no JSON object");
  Boundaries found;
  std::optional<bool> adds;
  if (const auto said = config.find("add_bos_token"); said != config.end() && !said->is_null()) {
    TRIREME_CHECK(said->is_boolean(), origin, ": \"add_bos_token\" must be true or false, found ",
                  said->dump().substr(0, 80));
    adds = said->get<bool>();
  } else if (class_adds_bos(config)) {
    adds = true;
  }
  if (adds.value_or(true)) {
    if (adds) found.begin = named_token(config, "bos_token", tokenizer, origin);
    if (found.begin.empty()) found.begin = post_processor_begin(tokenizer, origin);
    TRIREME_CHECK(!adds || !found.begin.empty(), origin,
                  ": a BOS stands before each text, and no \"bos_token\" says which it is");
  }
  if (const auto end = tokenizer.end_of_text()) found.end = tokenizer.token_of(*end);
  else found.end = named_token(config, "eos_token", tokenizer, origin);
  return found;
}

Boundaries boundaries_beside(const Tokenizer& tokenizer, const fs::path& tokenizer_json) {
  const fs::path config = tokenizer_json.parent_path() / "tokenizer_config.json";
  std::error_code error;
  const bool there = fs::is_regular_file(config, error);
  return boundaries_of(tokenizer, there ? read_file(config) : "", config.string());
}

}  // namespace trireme
