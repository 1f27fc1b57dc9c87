#include "data/tokenizer/model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/json_fields.h"

namespace trireme {
namespace {

using nlohmann::json;

// Ids index tables, so a file of a few bytes could ask for any; published ones have up to 300,000.
constexpr uint64_t kMostTokens = uint64_t{1} << 20;

int32_t checked_id(const json& id, const std::string& token, const JsonFields& fields) {
  if (!id.is_number_unsigned() || id.get<uint64_t>() >= kMostTokens)
    fields.fail(concat("the id of token '", token, "' must be a whole number below ", kMostTokens,
                       ", found ", id.dump().substr(0, 40)));
  return id.get<int32_t>();
}

void add_vocabulary(JsonFields& fields, Vocabulary& vocabulary) {
  const json& list = fields.at("vocab");
  if (!list.is_object()) fields.fail("'vocab' must be an object of tokens and ids");
  for (const auto& [token, value] : list.items()) {
    const int32_t id = checked_id(value, token, fields);
    if (!vocabulary.add(id, token)) {
      fields.fail(concat("the tokens '", vocabulary.find(id)->spelled, "' and '", token,
                         "' have the same id ", id));
    }
  }
}

std::pair<std::string, std::string> split_merge(const json& merge, size_t number,
                                                const JsonFields& fields) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  fields.fail(concat("merge ", number, " must be two tokens, found ", merge.dump().substr(0, 80)));
}

std::vector<Bpe::Pair> parse_merges(JsonFields& fields, const Vocabulary& vocabulary) {
  std::vector<Bpe::Pair> merges;
  size_t number = 0;
  for (const json& merge : fields.array("merges")) {
    if (merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version")) continue;
    const auto [left, right] = split_merge(merge, number, fields);
    const auto id = [&](const std::string& token) {
      const auto found = vocabulary.id_of(token);
      if (!found)
        fields.fail(concat("merge ", number, " names '", token, "', which the vocabulary lacks"));
      return *found;
    };
    merges.push_back({id(left), id(right), id(left + right)});
    ++number;
  }
  return merges;
}

}  // namespace

ParsedModel parse_model(const json& value, const std::string& where) {
  JsonFields fields(value, where);
  const std::string type = fields.text("type", "BPE");  // old files do not say
  if (type != "BPE") fields.fail(concat("the type '", type, "' is not supported, only BPE is"));
  ParsedModel model;
  add_vocabulary(fields, model.vocabulary);
  model.merges = parse_merges(fields, model.vocabulary);
  model.options.ignore_merges = fields.boolean("ignore_merges", false);
  model.options.byte_fallback = fields.boolean("byte_fallback", false);
  model.options.fuse_unknown = fields.boolean("fuse_unk", false);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!fields.text(key, "").empty()) fields.fail(concat("a '", key, "' is not supported"));
  if (const json* dropout = fields.find("dropout"); dropout && *dropout != 0)
    fields.fail("a 'dropout' is not supported");
  const std::string unknown = fields.text("unk_token", "");
  if (!unknown.empty()) {
    model.options.unknown = model.vocabulary.id_of(unknown);
    if (!model.options.unknown)
      fields.fail(concat("the unknown token '", unknown, "' is not in the vocabulary"));
  }
  fields.finish();
  return model;
}

std::vector<AddedToken> parse_added_tokens(const json& value, const std::string& where,
                                           Vocabulary& vocabulary) {
  std::vector<AddedToken> tokens;
  if (value.is_null()) return tokens;
  TRIREME_CHECK(value.is_array(), where, ": expected a list, found ", value.type_name());
  const int32_t model_count = vocabulary.count();
  int32_t next = model_count;
  std::set<std::string> seen;
  for (const json& entry : value) {
    JsonFields fields(entry, concat(where, "[", tokens.size(), "]"));
    AddedToken token;
    token.content = fields.text("content");
    token.id = checked_id(fields.at("id"), token.content, fields);
    token.special = fields.boolean("special");
    token.normalized = fields.boolean("normalized");
    token.single_word = fields.boolean("single_word");
    token.lstrip = fields.boolean("lstrip");
    token.rstrip = fields.boolean("rstrip");
    fields.finish();
    if (token.content.empty()) fields.fail("an added token must have a content");
    if (!seen.insert(token.content).second)
      fields.fail(concat("the token '", token.content, "' is added twice"));
    const auto known = vocabulary.id_of(token.content);
    const int32_t id = known ? *known : next;
    if (token.id != id)
      fields.fail(concat("the token '", token.content, "' has the id ", token.id, ", where ",
                         known ? "the vocabulary has " : "the next free one is ", id));
    if (!known && !vocabulary.add(id, token.content))
      fields.fail(concat("the tokens '", vocabulary.find(id)->spelled, "' and '", token.content,
                         "' have the same id ", id));
    if (id >= model_count) next = std::max(next, id + 1);
    vocabulary.at(id).special = token.special;
    tokens.push_back(std::move(token));
  }
  return tokens;
}

bool reads_bytes(const ParsedModel& model) {
  if (model.options.byte_fallback) return false;
  for (int b = 0; b < 256; ++b)
    if (!model.vocabulary.id_of(to_alphabet(std::string(1, static_cast<char>(b))))) return false;
  return true;
}

Bpe make_bpe(const ParsedModel& model, bool bytes) {
  std::vector<std::optional<std::string>> read;  // the bytes, where GPT-2's alphabet spells them
  std::vector<std::optional<std::string_view>> texts;
  for (const auto& token : model.vocabulary.all()) {
    read.push_back(token.exists && bytes ? from_alphabet(token.spelled) : std::nullopt);
    if (!token.exists) texts.emplace_back();
    else if (!bytes) texts.emplace_back(token.spelled);
    else texts.emplace_back();
  }
  if (bytes)
    for (size_t i = 0; i < read.size(); ++i)
      if (read[i]) texts[i] = *read[i];
  Bpe::Options options = model.options;
  options.bytes = bytes;
  return Bpe(texts, model.merges, options);
}

}  // namespace trireme
