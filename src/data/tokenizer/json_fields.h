// Reads a JSON object key by key, so that whatever is wrong, missing or left unread is named.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace trireme {

class JsonFields {
 public:
  // `where` names the object in messages. InputError if the value is no object.
  JsonFields(const nlohmann::json& object, std::string where);

  // nullptr: absent or null.
  const nlohmann::json* find(const char* key);
  const nlohmann::json& at(const char* key);  // InputError if it is absent or null

  // Without `otherwise`, an absent key is an InputError; so is a value of another type.
  bool boolean(const char* key, std::optional<bool> otherwise = {});
  std::string text(const char* key, std::optional<std::string> otherwise = {});
  uint64_t count(const char* key);  // a whole number >= 0
  const nlohmann::json& array(const char* key);
  char32_t character(const char* key);  // a string of one character

  void ignore(const char* key) { read_.insert(key); }
  // InputError that names the keys that nobody has read.
  void finish() const;

  const std::string& where() const { return where_; }
  [[noreturn]] void fail(std::string_view what) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string> read_;
};

// JSON may spell half a surrogate pair ("\ud800"), which is no character and which UTF-8 cannot
// hold. Each becomes "\ufffd"; `replaced` counts them. `json` need not be valid.
std::string replace_lone_surrogates(std::string_view json, uint64_t& replaced);

}  // namespace trireme
