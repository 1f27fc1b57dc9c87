#include "data/tokenizer/json_fields.h"

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace trireme {

using nlohmann::json;

JsonFields::JsonFields(const json& object, std::string where)
    : object_(object), where_(std::move(where)) {
  TRIREME_CHECK(object.is_object(), where_, ": expected an object, found ", object.type_name());
}

void JsonFields::fail(std::string_view what) const { throw InputError(concat(where_, ": ", what)); }

const json* JsonFields::find(const char* key) {
  read_.insert(key);
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const json& JsonFields::at(const char* key) {
  const json* found = find(key);
  if (found == nullptr) fail(concat("'", key, "' is missing"));
  return *found;
}

bool JsonFields::boolean(const char* key, std::optional<bool> otherwise) {
  const json* found = find(key);
  if (found == nullptr && otherwise) return *otherwise;
  const json& value = at(key);
  if (!value.is_boolean())
    fail(concat("'", key, "' must be true or false, found ", value.type_name()));
  return value.get<bool>();
}

std::string JsonFields::text(const char* key, std::optional<std::string> otherwise) {
  const json* found = find(key);
  if (found == nullptr && otherwise) return *otherwise;
  const json& value = at(key);
  if (!value.is_string()) fail(concat("'", key, "' must be a string, found ", value.type_name()));
  return value.get<std::string>();
}

uint64_t JsonFields::count(const char* key) {
  const json& value = at(key);
  if (!value.is_number_unsigned()) fail(concat("'", key, "' must be a whole number, not negative"));
  return value.get<uint64_t>();
}

const json& JsonFields::array(const char* key) {
  const json& value = at(key);
  if (!value.is_array()) fail(concat("'", key, "' must be a list, found ", value.type_name()));
  return value;
}

char32_t JsonFields::character(const char* key) {
  const std::string value = text(key);
  if (!value.empty()) {
    const auto [code, bytes] = unicode::decode(value.data(), value.data() + value.size());
    if (bytes == value.size()) return code;
  }
  fail(concat("'", key, "' must be one character, found '", value, "'"));
}

void JsonFields::finish() const {
  for (const auto& [key, value] : object_.items())
    if (!read_.contains(key)) fail(concat("'", key, "' is not supported"));
}

namespace {

// The code of "\uXXXX" at the beginning, or nothing.
std::optional<uint32_t> escaped_code(std::string_view text) {
  if (text.size() < 6 || !text.starts_with("\\u")) return std::nullopt;
  uint32_t code = 0;
  for (const char c : text.substr(2, 4)) {
    const auto place = std::string_view("0123456789abcdef").find(c >= 'A' && c <= 'F' ? c + 32 : c);
    if (place == std::string_view::npos) return std::nullopt;
    code = code * 16 + static_cast<uint32_t>(place);
  }
  return code;
}

bool is_high(uint32_t code) { return code >= 0xD800 && code < 0xDC00; }
bool is_low(uint32_t code) { return code >= 0xDC00 && code < 0xE000; }

}  // namespace

std::string replace_lone_surrogates(std::string_view text, uint64_t& replaced) {
  std::string out;
  size_t done = 0;
  for (size_t i = text.find('\\'); i != std::string_view::npos; i = text.find('\\', i)) {
    const auto code = escaped_code(text.substr(i));
    const auto next = code ? escaped_code(text.substr(i + 6)) : std::nullopt;
    if (code && is_high(*code) && next && is_low(*next)) {
      i += 12;
    } else if (code && (is_high(*code) || is_low(*code))) {
      out.append(text, done, i - done);
      out += "\\ufffd";
      ++replaced;
      i += 6, done = i;
    } else {
      i += code ? 6 : 2;  // A backslash that is itself escaped begins nothing.
    }
    if (i > text.size()) break;
  }
  return out.append(text, std::min(done, text.size()));
}

}  // namespace trireme
