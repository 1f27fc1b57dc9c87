#include "cli/json_lines.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "base/error.h"
#include "base/json.h"

namespace trireme {

std::vector<JsonLine> read_json_lines(const std::string& path) {
  const bool from_stdin = path == "-";
  const std::string name = from_stdin ? "stdin" : path;
  std::vector<JsonLine> lines;
  std::istringstream text(read_file(from_stdin ? "/dev/stdin" : path));
  size_t number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    std::string where = concat(name, ":", number);
    auto value = parse_json<nlohmann::json>(line, where);
    lines.push_back({std::move(where), std::move(value)});
  }
  TRIREME_CHECK(!lines.empty(), name, " has no lines; expected one JSON object a line");
  return lines;
}

std::vector<int32_t> read_ids(const nlohmann::json& list, int64_t vocab, const std::string& where) {
  TRIREME_CHECK(list.is_array(), where, ": expected a list of ids, found ", list.type_name());
  std::vector<int32_t> ids;
  for (const nlohmann::json& id : list) {
    TRIREME_CHECK(id.is_number_unsigned() && id.get<uint64_t>() < static_cast<uint64_t>(vocab),
                  where, ": ", id.dump().substr(0, 40), " is no id; the model has ", vocab);
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

JsonLinesWriter::JsonLinesWriter(const std::string& path) {
  if (!path.empty()) file_ = std::make_unique<AtomicFile>(path);
}

void JsonLinesWriter::add(const nlohmann::ordered_json& line) {
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (file_) {
    file_->write(text);
    return;
  }
  std::fputs(text.c_str(), stdout);
  if (std::fflush(stdout) != 0)
    throw RunError(concat("cannot write to stdout: ", std::strerror(errno)));
}

void JsonLinesWriter::commit() {
  if (file_) file_->commit();
}

}  // namespace trireme
