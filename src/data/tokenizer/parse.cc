#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/random.h"
#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/model.h"
#include "data/tokenizer/tokenizer_parts.h"

namespace trireme {
namespace {

using nlohmann::json;

// The model's alphabet is bytes if the last step spells them and no other one does.
bool spells_bytes_last(const std::vector<PreTokenizerStep>& cuts,
                       const std::vector<NormalizerStep>& changes) {
  const auto spells = [](const auto& step) { return std::holds_alternative<SpellBytes>(step); };
  const auto rewrites = [](const auto& step) { return std::holds_alternative<ByteAlphabet>(step); };
  return !cuts.empty() && spells(cuts.back()) && std::ranges::count_if(cuts, spells) == 1 &&
         std::ranges::none_of(changes, rewrites);
}

void check_metaspace(const std::vector<PreTokenizerStep>& cuts, const Normalizer& normalizer,
                     std::string_view origin) {
  for (const auto& cut : cuts)
    if (const auto* marks = std::get_if<MetaspaceMarks>(&cut))
      TRIREME_CHECK(marks->prepend != MetaspaceMarks::Where::first || !normalizer.removes(), origin,
                    ": a Metaspace with prepend_scheme 'first' after a normalizer that removes "
                    "characters is not supported");
}

TokenFinder find_raw(std::vector<AddedToken> tokens) {
  std::erase_if(tokens, [](const AddedToken& t) { return t.normalized; });
  std::vector<std::string> spelled;
  for (const auto& token : tokens) spelled.push_back(token.content);
  return TokenFinder(std::move(tokens), spelled);
}

// Special tokens first: of two that are equal once normalized, the first is found.
TokenFinder find_normalized(std::vector<AddedToken> tokens, const Normalizer& normalizer,
                            std::string_view origin) {
  std::erase_if(tokens, [](const AddedToken& t) { return !t.normalized; });
  std::ranges::stable_partition(tokens, [](const AddedToken& t) { return t.special; });
  std::vector<std::string> spelled;
  PatternScratch scratch;
  for (const auto& token : tokens) {
    spelled.push_back(normalizer(token.content, scratch));
    TRIREME_CHECK(!spelled.back().empty(), origin, ": nothing is left of the added token '",
                  token.content, "' once it is normalized");
  }
  return TokenFinder(std::move(tokens), spelled);
}

void set_bytes(Vocabulary& vocabulary, const Decoder& decoder) {
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    auto& token = vocabulary.at(id);
    if (token.exists && !token.special) token.bytes = decoder.bytes_of(token.spelled);
  }
}

// Of what the file says, not of how it is laid out: the vocabulary by id, the merges by rank, and
// the rest with sorted keys.
uint64_t hash_content(json& document, const ParsedModel& model) {
  uint64_t hash = 0;
  for (const auto& token : model.vocabulary.all())
    hash = hash_name(token.spelled, hash + token.exists);
  for (const auto& [left, right, id] : model.merges) {
    const int32_t pair[2] = {left, right};
    hash = hash_name({reinterpret_cast<const char*>(pair), sizeof pair}, hash);
  }
  document["model"].erase("vocab");
  document["model"].erase("merges");
  return hash_name(document.dump(), hash);
}

void check_top_level(JsonFields& fields) {
  const std::string version = fields.text("version", "1.0");
  if (version != "1.0") fields.fail(concat("the version '", version, "' is not supported"));
  for (const char* key : {"truncation", "padding"})
    if (fields.find(key)) fields.fail(concat("'", key, "' is not supported; set it to null"));
  for (const char* key :
       {"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder"})
    fields.ignore(key);
  fields.at("model");
  fields.finish();
}

}  // namespace

Tokenizer Tokenizer::load(const fs::path& tokenizer_json) {
  return parse(read_file(tokenizer_json), tokenizer_json.string());
}

Tokenizer Tokenizer::parse(std::string_view text, std::string_view origin) {
  json document = parse_json<json>(text, origin);
  JsonFields fields(document, std::string(origin));
  check_top_level(fields);
  const auto part = [&](const char* key) {
    const json* found = fields.find(key);
    return found ? *found : json();
  };
  const auto where = [&](const char* key) { return concat(origin, ": ", key); };

  ParsedModel model = parse_model(document["model"], where("model"));
  auto changes = parse_normalizer(part("normalizer"), where("normalizer"));
  auto cuts = parse_pre_tokenizer(part("pre_tokenizer"), where("pre_tokenizer"));
  const bool bytes = spells_bytes_last(cuts, changes) && reads_bytes(model);
  Bpe bpe = make_bpe(model, bytes);
  if (bytes) cuts.pop_back();  // the model does it
  Normalizer normalizer(std::move(changes));
  check_metaspace(cuts, normalizer, origin);
  Decoder decoder = parse_decoder(part("decoder"), where("decoder"));
  Surroundings around = parse_post_processor(part("post_processor"), where("post_processor"));
  const uint64_t fingerprint = hash_content(document, model);
  const auto added =
      parse_added_tokens(part("added_tokens"), where("added_tokens"), model.vocabulary);
  set_bytes(model.vocabulary, decoder);
  for (const int32_t id : around.prefix)
    TRIREME_CHECK(model.vocabulary.find(id), where("post_processor"), ": there is no token ", id);
  for (const int32_t id : around.suffix)
    TRIREME_CHECK(model.vocabulary.find(id), where("post_processor"), ": there is no token ", id);

  TokenFinder raw = find_raw(added), normalized = find_normalized(added, normalizer, origin);
  return Tokenizer(std::unique_ptr<const Parts>(new Parts{std::string(text),
                                                          fingerprint,
                                                          std::move(model.vocabulary),
                                                          std::move(raw),
                                                          std::move(normalized),
                                                          std::move(normalizer),
                                                          PreTokenizer(std::move(cuts)),
                                                          std::move(bpe),
                                                          std::move(decoder),
                                                          std::move(around),
                                                          {}}));
}

}  // namespace trireme
