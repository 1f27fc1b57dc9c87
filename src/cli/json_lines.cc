#include "cli/json_lines.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/json.h"

namespace trireme {

std::vector<nlohmann::json> read_json_lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::istringstream text(read_file(path));
  size_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back(parse_json<nlohmann::json>(line, concat(path, ":", number)));
  }
  TRIREME_CHECK(!lines.empty(), path, " has no lines");
  return lines;
}

JsonLinesWriter::JsonLinesWriter(const std::string& path) {
  if (!path.empty()) file_ = std::make_unique<AtomicFile>(path);
}

void JsonLinesWriter::add(const nlohmann::json& line) {
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (file_) file_->write(text);
  else std::fputs(text.c_str(), stdout);
}

void JsonLinesWriter::commit() {
  if (file_) file_->commit();
}

}  // namespace trireme
