// Reads a Hugging Face config.json key by key, so that nothing in it is ignored: what was not read,
// and is not known to leave the numbers of a forward pass alone, is an error at the end.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trireme {

// What a file holds, as a message may show it: on one line, and at most about 80 characters.
std::string shown_text(std::string_view text);
std::string shown_value(const nlohmann::json& value);

class ConfigReader {
 public:
  // The object outlives the reader; `origin` and `family` are for messages.
  ConfigReader(const nlohmann::json& config, std::string origin, std::string family);

  // A value, or `absent` where the key is missing or null; without one that is an InputError, as
  // are another type and a number outside its range.
  int64_t size(const char* key, std::optional<int64_t> absent = {});    // 1 … 2^32
  double positive(const char* key, std::optional<double> absent = {});  // > 0 and finite
  bool flag(const char* key, std::optional<bool> absent = {});
  std::string text(const char* key, std::optional<std::string> absent = {});
  bool given(const char* key) const { return config_.contains(key); }  // null counts
  // What the key holds, unless it is missing or null.
  const nlohmann::json* find(const char* key);

  // The one value that is supported, which is also the one that stands for an absent key.
  template <class T>
  void must_be(const char* key, const T& wanted) {
    const nlohmann::json* value = find(key);
    TRIREME_CHECK(!value || *value == nlohmann::json(wanted), where(key), " = ",
                  shown_value(*value), " is not supported; expected ",
                  nlohmann::json(wanted).dump());
  }
  // A rate of dropout: read and not applied, which is said if it is above 0.
  void dropout(const char* key);
  void harmless(std::initializer_list<const char*> keys);

  // "origin: \"key\""
  std::string where(const std::string& key) const;

  // InputError naming the first key that was not read.
  void finish() const;

 private:
  [[noreturn]] void wrong_type(const char* key, const char* wanted) const;

  const nlohmann::json& config_;
  std::string origin_, family_;
  std::set<std::string> read_;
};

}  // namespace trireme
