// JSON lines in and out, as several verbs read and write them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"

namespace trireme {

struct JsonLine {
  std::string where;  // "FILE:LINE", for messages
  nlohmann::json value;
};

// One value a line; empty lines are passed over. "-" is stdin. InputError with file and line if one
// is no JSON, or if there are none.
std::vector<JsonLine> read_json_lines(const std::string& path);

// A list of ids below `vocab`. InputError that begins with `where`.
std::vector<int32_t> read_ids(const nlohmann::json& list, int64_t vocab, const std::string& where);

// To a file that appears whole at commit(), or, if `path` is empty, to stdout line by line.
class JsonLinesWriter {
 public:
  explicit JsonLinesWriter(const std::string& path);
  void add(const nlohmann::ordered_json& line);  // bytes that are no UTF-8 become U+FFFD
  void commit();

 private:
  std::unique_ptr<AtomicFile> file_;
};

}  // namespace trireme
