#include "data/chat_template.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/python_worker.h"
#include "data/chat_template.py.h"

namespace trireme {
namespace {

using json = nlohmann::ordered_json;

constexpr auto kTimeout = std::chrono::seconds(20);  // templates need a millisecond
constexpr const char* kTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

json read_object(const fs::path& path) {
  if (!fs::exists(path)) return json::object();
  json object = parse_json<json>(read_file(path), path.string());
  TRIREME_CHECK(object.is_object(), path.string(), " is no JSON object");
  return object;
}

// A token is its text, or an object that says more about it.
std::string token_text(const json& token, const std::string& where) {
  const json* text = &token;
  if (token.is_object() && token.contains("content")) text = &token["content"];
  TRIREME_CHECK(text->is_string(), where, " is no token: ", token.dump().substr(0, 80));
  return text->get<std::string>();
}

void add_token(const json& config, const char* name, const std::string& origin, json& tokens) {
  const auto token = config.find(name);
  if (token == config.end() || token->is_null()) return;
  std::string text = token_text(*token, concat(origin, ": \"", name, "\""));
  if (!text.empty()) tokens[name] = std::move(text);
}

// The names and tokens that transformers hands to templates. What the older special_tokens_map.json
// says goes before where tokenizer_config.json is of the style that came with it.
json special_tokens(const fs::path& directory, const json& config) {
  const std::string origin = (directory / "tokenizer_config.json").string();
  json tokens = json::object();
  for (const char* name : kTokenNames) add_token(config, name, origin, tokens);
  std::vector<json> lists = {config.value("additional_special_tokens", json())};
  if (!config.contains("added_tokens_decoder")) {
    const fs::path path = directory / "special_tokens_map.json";
    const json map = read_object(path);
    for (const char* name : kTokenNames) add_token(map, name, path.string(), tokens);
    lists.push_back(map.value("additional_special_tokens", json()));
  }
  json additional = json::array();
  for (const json& list : lists)
    if (list.is_array())
      for (const json& token : list) {
        json text = token_text(token, concat(origin, ": \"additional_special_tokens\""));
        if (std::ranges::find(additional, text) == additional.end())
          additional.push_back(std::move(text));
      }
  if (!additional.empty()) tokens["additional_special_tokens"] = std::move(additional);
  // Tokens of one model's own, such as "image_token".
  const json extra = config.value("extra_special_tokens", json());
  if (extra.is_object())
    for (const auto& [name, token] : extra.items())
      tokens[name] = token_text(token, concat(origin, ": \"extra_special_tokens\""));
  return tokens;
}

std::map<std::string, std::string> template_files(const fs::path& directory) {
  std::map<std::string, std::string> found;
  if (const fs::path path = directory / "chat_template.jinja"; fs::exists(path))
    found["default"] = read_file(path);
  const fs::path folder = directory / "additional_chat_templates";
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
    if (entry.path().extension() == ".jinja")
      found[entry.path().stem().string()] = read_file(entry.path());
  return found;
}

std::map<std::string, std::string> configured_templates(const json& config,
                                                        const std::string& origin) {
  const json value = config.value("chat_template", json());
  if (value.is_null()) return {};
  if (value.is_string()) return {{"default", value.get<std::string>()}};
  const std::string where = concat(origin, ": \"chat_template\"");
  TRIREME_CHECK(value.is_array(), where, " must be a text or a list of named texts, got ",
                value.dump().substr(0, 80));
  std::map<std::string, std::string> found;
  for (const json& one : value) {
    const bool named = one.is_object() && one.contains("name") && one["name"].is_string() &&
                       one.contains("template") && one["template"].is_string();
    TRIREME_CHECK(named, where, " must hold objects with a \"name\" and a \"template\", got ",
                  one.dump().substr(0, 80));
    found[one["name"].get<std::string>()] = one["template"].get<std::string>();
  }
  return found;
}

// Templates see the objects of a list, so those that are none would fail far from here.
void check_list(const json& conversation, const char* key, const char* needed,
                std::string_view where) {
  const auto list = conversation.find(key);
  if (list == conversation.end() || list->is_null()) return;
  TRIREME_CHECK(list->is_array(), where, ": \"", key, "\" must be a list, got ",
                list->dump().substr(0, 80));
  for (const json& item : *list)
    TRIREME_CHECK(
        item.is_object() && (!needed || (item.contains(needed) && item[needed].is_string())), where,
        ": \"", key, "\" must hold objects", needed ? " with a \"" : "", needed ? needed : "",
        needed ? "\"" : "", ", got ", item.dump().substr(0, 80));
}

}  // namespace

std::optional<ChatTemplate> ChatTemplate::load(const fs::path& directory) {
  const std::string origin = (directory / "tokenizer_config.json").string();
  const json config = read_object(directory / "tokenizer_config.json");
  ChatTemplate loaded;
  loaded.origin_ = directory.string();
  loaded.templates_ = template_files(directory);
  if (loaded.templates_.empty()) loaded.templates_ = configured_templates(config, origin);
  if (loaded.templates_.empty()) return std::nullopt;
  loaded.special_tokens_ = special_tokens(directory, config);
  loaded.worker_ = std::make_shared<PythonWorker>(
      PythonWorker::Options{.script = kChatTemplatePy, .timeout = kTimeout});
  return loaded;
}

const std::string& ChatTemplate::choose(bool with_tools, const std::string& name) const {
  const std::string usual = with_tools && templates_.contains("tool_use") ? "tool_use" : "default";
  const auto found = templates_.find(name.empty() ? usual : name);
  if (found != templates_.end()) return found->second;
  std::string known;
  for (const auto& [one, text] : templates_) known += (known.empty() ? "" : ", ") + one;
  throw InputError(concat(origin_, " has no chat template '", name.empty() ? usual : name,
                          "'; there is ", known));
}

std::string ChatTemplate::render(const json& conversation, const Options& options,
                                 std::string_view where) const {
  TRIREME_CHECK(conversation.is_object() && conversation.contains("messages"), where,
                ": expected an object with \"messages\"");
  const json& messages = conversation["messages"];
  TRIREME_CHECK(messages.is_array() && !messages.empty(), where,
                ": \"messages\" must be a list of at least one message");
  check_list(conversation, "messages", "role", where);
  check_list(conversation, "tools", nullptr, where);
  check_list(conversation, "documents", nullptr, where);
  const json more = conversation.value("chat_template_kwargs", json());
  TRIREME_CHECK(more.is_null() || more.is_object(), where,
                ": \"chat_template_kwargs\" must be an object, got ", more.dump().substr(0, 80));
  json variables = special_tokens_;
  if (more.is_object()) variables.update(more);
  const json tools = conversation.value("tools", json());
  variables["messages"] = messages;
  variables["tools"] = tools;
  variables["documents"] = conversation.value("documents", json());
  variables["add_generation_prompt"] = options.add_generation_prompt;
  // As text, because the worker's requests have no order of keys.
  auto reply = worker_->ask(
      {{"template", choose(!tools.is_null(), options.name)}, {"variables", variables.dump()}});
  TRIREME_CHECK(reply.ok(), where, ": the chat template of ", origin_, ": ", reply.reason());
  return reply.value()["text"].get<std::string>();
}

}  // namespace trireme
