// Strict JSON for manifests: what is unknown, missing, twice, too deep or of another type is
// refused. For src/state's own .cc files.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

namespace trireme {

using Json = nlohmann::ordered_json;

// Caught where the file's name is known.
class BadJson : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

Json parse_json(std::string_view text);  // at most 8 deep, no key twice in an object

int64_t count_of(const Json& json, std::string_view what);  // a whole number, 0 to 2^63 - 1

// Takes the fields of an object one by one; end() refuses those that are left.
class JsonObject {
 public:
  explicit JsonObject(const Json& json);
  const Json& take(const char* name);
  int64_t count(const char* name) { return count_of(take(name), name); }
  const std::string& text(const char* name);
  const Json& array(const char* name);
  const Json& object(const char* name);
  std::map<std::string, std::string> texts(const char* name);
  void end() const;

 private:
  const Json& json_;
  size_t taken_ = 0;
};

}  // namespace trireme
