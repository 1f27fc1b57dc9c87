// The parts of a tokenizer.json, each from its JSON. `where` names the part in messages; what is
// not supported is refused by its name.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/tokenizer/decoder.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/pre_tokenizer.h"

namespace trireme {

// All take null for "none".
std::vector<NormalizerStep> parse_normalizer(const nlohmann::json& value, const std::string& where);
std::vector<PreTokenizerStep> parse_pre_tokenizer(const nlohmann::json& value,
                                                  const std::string& where);
Decoder parse_decoder(const nlohmann::json& value, const std::string& where);

// What goes before and after the ids of one text.
struct Surroundings {
  std::vector<int32_t> prefix, suffix;
};
Surroundings parse_post_processor(const nlohmann::json& value, const std::string& where);

}  // namespace trireme
