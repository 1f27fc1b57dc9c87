#include "state/manifest_json.h"

#include <set>
#include <vector>

#include "base/error.h"

namespace trireme {

Json parse_json(std::string_view text) {
  constexpr int kMaxDepth = 8;
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    if (depth > kMaxDepth) throw BadJson("it is nested too deeply");
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw BadJson("key " + parsed.get<std::string>() + " occurs twice");
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const nlohmann::json::exception&) {
    throw BadJson("it is no JSON");
  }
}

int64_t count_of(const Json& json, std::string_view what) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() >> 63)
    throw BadJson(concat(what, " must be a whole number"));
  return json.get<int64_t>();
}

JsonObject::JsonObject(const Json& json) : json_(json) {
  if (!json.is_object()) throw BadJson("a record must be an object");
}

const Json& JsonObject::take(const char* name) {
  const auto at = json_.find(name);
  if (at == json_.end()) throw BadJson(concat("field ", name, " is missing"));
  ++taken_;
  return *at;
}

const std::string& JsonObject::text(const char* name) {
  const Json& json = take(name);
  if (!json.is_string()) throw BadJson(concat(name, " must be text"));
  return json.get_ref<const std::string&>();
}

const Json& JsonObject::array(const char* name) {
  const Json& json = take(name);
  if (!json.is_array()) throw BadJson(concat(name, " must be a list"));
  return json;
}

const Json& JsonObject::object(const char* name) {
  const Json& json = take(name);
  if (!json.is_object()) throw BadJson(concat(name, " must be an object"));
  return json;
}

std::map<std::string, std::string> JsonObject::texts(const char* name) {
  std::map<std::string, std::string> values;
  for (const auto& [key, value] : object(name).items()) {
    if (!value.is_string()) throw BadJson(concat(key, " in ", name, " must be text"));
    values[key] = value.get<std::string>();
  }
  return values;
}

void JsonObject::end() const {
  if (taken_ != json_.size()) throw BadJson("it has a field that is unknown");
}

}  // namespace trireme
