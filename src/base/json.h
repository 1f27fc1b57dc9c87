// JSON of files that anybody may have written: bounded in bytes, depth and number of values, and
// strict. Every JSON value that we hold whole comes through here; safetensors headers and the text
// fields of .jsonl are read as a stream of events, with bounds of their own.
//
// Refused: what RFC 8259 does not allow (NaN, Infinity, comments, broken UTF-8, half a surrogate
// pair, anything behind the value), numbers that no double holds, a key that an object has twice,
// and what exceeds the limits. A reason is one line of printable characters, with the place.
//
// Threads: any. Cost: time proportional to n log n of the text; memory at most about 100 bytes a
// value beside its texts.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "base/error.h"

namespace trireme {

struct JsonLimits {
  size_t bytes = size_t{1} << 28;   // published tokenizers have up to 35 MB
  size_t values = size_t{1} << 24;  // and 2 million values
  int depth = 64;                   // so that recursion over the value needs little stack
};

// Json is nlohmann::json, with keys in order, or nlohmann::ordered_json, as they came.
template <class Json>
Result<Json> try_parse_json(std::string_view text, const JsonLimits& limits = {});

// InputError: "<origin>: this is no JSON …". `origin` names the file.
template <class Json>
Json parse_json(std::string_view text, std::string_view origin, const JsonLimits& limits = {});

extern template Result<nlohmann::json> try_parse_json(std::string_view, const JsonLimits&);
extern template Result<nlohmann::ordered_json> try_parse_json(std::string_view, const JsonLimits&);
extern template nlohmann::json parse_json(std::string_view, std::string_view, const JsonLimits&);
extern template nlohmann::ordered_json parse_json(std::string_view, std::string_view,
                                                  const JsonLimits&);

}  // namespace trireme
