// The "model" and "added_tokens" of a tokenizer.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/tokenizer_parts.h"

namespace trireme {

struct ParsedModel {
  Vocabulary vocabulary;  // without the added tokens
  std::vector<Bpe::Pair> merges;
  Bpe::Options options;
};
ParsedModel parse_model(const nlohmann::json& value, const std::string& where);

// Adds them to the vocabulary, with the ids that `tokenizers` gives them, which the file must name.
std::vector<AddedToken> parse_added_tokens(const nlohmann::json& value, const std::string& where,
                                           Vocabulary& vocabulary);

// Takes single bytes as symbols if that gives the same ids: the model reads GPT-2's alphabet and
// has all of it.
bool reads_bytes(const ParsedModel& model);
Bpe make_bpe(const ParsedModel& model, bool bytes);

}  // namespace trireme
