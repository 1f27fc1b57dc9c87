#include "state/manifest_json.h"

#include "base/error.h"
#include "base/json.h"

namespace trireme {

Json parse_json(std::string_view text) {
  constexpr JsonLimits kLimits = {
      .bytes = size_t{1} << 32, .values = size_t{1} << 30, .depth = 8};  // as many as its ranks
  Result<Json> parsed = try_parse_json<Json>(text, kLimits);
  if (!parsed.ok()) throw BadJson("it is no JSON that can be read: " + parsed.reason());
  return std::move(parsed).value();
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
