// JSON lines in and out, as several verbs read and write them.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"

namespace trireme {

// One value a line; empty lines are passed over. InputError with file and line if one is no JSON.
std::vector<nlohmann::json> read_json_lines(const std::string& path);

// To a file that appears whole at commit(), or, if `path` is empty, to stdout line by line.
class JsonLinesWriter {
 public:
  explicit JsonLinesWriter(const std::string& path);
  void add(const nlohmann::json& line);  // bytes that are no UTF-8 become U+FFFD
  void commit();

 private:
  std::unique_ptr<AtomicFile> file_;
};

}  // namespace trireme
