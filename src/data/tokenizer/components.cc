#include "data/tokenizer/components.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/tokenizer/json_fields.h"

namespace trireme {
namespace {

using nlohmann::json;

// Calls parse(element, where) for each element of a Sequence's list.
template <class Parse>
void each_element(JsonFields& fields, const char* list, Parse parse) {
  size_t i = 0;
  for (const json& element : fields.array(list))
    parse(element, concat(fields.where(), ".", list, "[", i++, "]"));
}

[[noreturn]] void unsupported(const JsonFields& fields, const std::string& type) {
  fields.fail(concat("the type '", type, "' is not supported"));
}

Pattern parse_pattern(JsonFields& fields) {
  JsonFields pattern(fields.at("pattern"), fields.where() + ".pattern");
  const bool literal = pattern.find("String") != nullptr;
  const std::string text = pattern.text(literal ? "String" : "Regex");
  pattern.finish();
  if (literal) return Pattern::literal(text);
  return Pattern::regex(text, pattern.where());
}

Replace parse_replace(JsonFields& fields) {
  return {parse_pattern(fields), fields.text("content")};
}

void add_normalizer(const json& value, const std::string& where,
                    std::vector<NormalizerStep>& steps) {
  JsonFields fields(value, where);
  const std::string type = fields.text("type");
  using unicode::Form;
  if (type == "Sequence") {
    each_element(fields, "normalizers",
                 [&](const json& v, const std::string& w) { add_normalizer(v, w, steps); });
  } else if (type == "NFC") {
    steps.emplace_back(Form::nfc);
  } else if (type == "NFD") {
    steps.emplace_back(Form::nfd);
  } else if (type == "NFKC") {
    steps.emplace_back(Form::nfkc);
  } else if (type == "NFKD") {
    steps.emplace_back(Form::nfkd);
  } else if (type == "Lowercase") {
    steps.emplace_back(Lowercase{});
  } else if (type == "StripAccents") {
    steps.emplace_back(StripAccents{});
  } else if (type == "Strip") {
    steps.emplace_back(StripSpaces{fields.boolean("strip_left"), fields.boolean("strip_right")});
  } else if (type == "Prepend") {
    steps.emplace_back(Prepend{fields.text("prepend")});
  } else if (type == "Replace") {
    steps.emplace_back(parse_replace(fields));
  } else if (type == "ByteLevel") {
    steps.emplace_back(ByteAlphabet{});
  } else {
    unsupported(fields, type);
  }
  fields.finish();
}

CutBehavior parse_behavior(JsonFields& fields, std::optional<std::string> otherwise = {}) {
  const std::string name = fields.text("behavior", otherwise);
  if (name == "Removed") return CutBehavior::removed;
  if (name == "Isolated") return CutBehavior::isolated;
  if (name == "Contiguous") return CutBehavior::contiguous;
  if (name == "MergedWithPrevious") return CutBehavior::merged_with_previous;
  if (name == "MergedWithNext") return CutBehavior::merged_with_next;
  fields.fail(concat("the behavior '", name, "' is not supported"));
}

// A cut by one of the expressions that have a scanner covers the text with matches, so that keeping
// only the matches is the same as keeping all.
PreTokenizerStep parse_split(JsonFields& fields) {
  const CutBehavior behavior = parse_behavior(fields);
  const bool invert = fields.boolean("invert");
  const json& pattern = fields.at("pattern");
  if (const auto regex = pattern.find("Regex"); regex != pattern.end() && regex->is_string()) {
    const auto style = style_of(regex->get_ref<const std::string&>());
    const bool all =
        behavior == CutBehavior::isolated || (invert && behavior == CutBehavior::removed);
    if (style && all) return CutWords{*style};
  }
  return Cut{parse_pattern(fields), behavior, invert};
}

MetaspaceMarks::Where parse_prepend(JsonFields& fields) {
  const bool legacy = fields.boolean("add_prefix_space", true);
  const std::string scheme = fields.text("prepend_scheme", "always");
  if (!legacy && scheme != "never")
    fields.fail(concat("add_prefix_space is false, yet prepend_scheme is '", scheme, "'"));
  using Where = MetaspaceMarks::Where;
  if (scheme == "always") return Where::always;
  if (scheme == "first") return Where::first;
  if (scheme == "never") return Where::never;
  fields.fail(concat("the prepend_scheme '", scheme, "' is not supported"));
}

void add_metaspace(JsonFields& fields, std::vector<PreTokenizerStep>& steps) {
  const char32_t mark = fields.character("replacement");
  std::string spelled;
  unicode::append(spelled, mark);
  fields.ignore("str_rep");  // old files: the same character again
  steps.emplace_back(MetaspaceMarks{spelled, parse_prepend(fields)});
  if (fields.boolean("split", true))
    steps.emplace_back(Cut{OneCharacter{mark}, CutBehavior::merged_with_next, false});
}

void add_pre_tokenizer(const json& value, const std::string& where,
                       std::vector<PreTokenizerStep>& steps) {
  JsonFields fields(value, where);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    each_element(fields, "pretokenizers",
                 [&](const json& v, const std::string& w) { add_pre_tokenizer(v, w, steps); });
  } else if (type == "ByteLevel") {
    fields.ignore("trim_offsets");  // about offsets, which we do not give
    if (fields.boolean("add_prefix_space")) steps.emplace_back(PrefixSpace{});
    if (fields.boolean("use_regex", true)) steps.emplace_back(CutWords{WordStyle::gpt2});
    steps.emplace_back(SpellBytes{});
  } else if (type == "Split") {
    steps.push_back(parse_split(fields));
  } else if (type == "Digits") {
    const bool each = fields.boolean("individual_digits");
    steps.emplace_back(
        Cut{CharacterClass::number, each ? CutBehavior::isolated : CutBehavior::contiguous, false});
  } else if (type == "Punctuation") {
    steps.emplace_back(Cut{CharacterClass::punctuation, parse_behavior(fields, "Isolated"), false});
  } else if (type == "WhitespaceSplit") {
    steps.emplace_back(Cut{CharacterClass::space, CutBehavior::removed, false});
  } else if (type == "CharDelimiterSplit") {
    steps.emplace_back(
        Cut{OneCharacter{fields.character("delimiter")}, CutBehavior::removed, false});
  } else if (type == "Metaspace") {
    add_metaspace(fields, steps);
  } else {
    unsupported(fields, type);
  }
  fields.finish();
}

void add_decoder(const json& value, const std::string& where, std::vector<DecoderStep>& steps) {
  JsonFields fields(value, where);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    each_element(fields, "decoders",
                 [&](const json& v, const std::string& w) { add_decoder(v, w, steps); });
  } else if (type == "ByteLevel") {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.ignore(key);
    steps.emplace_back(ReadAlphabet{});
  } else if (type == "ByteFallback") {
    steps.emplace_back(ReadByteTokens{});
  } else if (type == "Fuse") {
    steps.emplace_back(JoinTokens{});
  } else if (type == "Strip") {
    steps.emplace_back(
        StripCharacter{fields.character("content"), fields.count("start"), fields.count("stop")});
  } else if (type == "Replace") {
    steps.emplace_back(parse_replace(fields));
  } else if (type == "Metaspace") {
    fields.ignore("str_rep"), fields.ignore("split");
    const char32_t mark = fields.character("replacement");
    steps.emplace_back(ReadMetaspace{mark, parse_prepend(fields) != MetaspaceMarks::Where::never});
  } else {
    unsupported(fields, type);
  }
  fields.finish();
}

int32_t parse_id(const json& value, const JsonFields& fields) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT32_MAX)
    fields.fail("an id must be a whole number below 2,147,483,648");
  return value.get<int32_t>();
}

// The template of one text: special tokens around the sequence "A".
void add_template(JsonFields& fields, Surroundings& around) {
  fields.ignore("pair");  // two texts are never encoded as one here
  JsonFields tokens(fields.at("special_tokens"), fields.where() + ".special_tokens");
  std::vector<int32_t> before, after;
  bool seen = false;
  for (const json& piece : fields.array("single")) {
    JsonFields entry(piece, fields.where() + ".single");
    if (const json* sequence = entry.find("Sequence")) {
      JsonFields what(*sequence, entry.where());
      if (what.text("id") != "A" || seen) fields.fail("'single' must have the sequence A once");
      seen = true;
    } else {
      JsonFields what(entry.at("SpecialToken"), entry.where());
      const std::string name = what.text("id");
      JsonFields token(tokens.at(name.c_str()), tokens.where() + "." + name);
      for (const json& id : token.array("ids"))
        (seen ? after : before).push_back(parse_id(id, token));
    }
    entry.finish();
  }
  if (!seen) fields.fail("'single' lacks the sequence A");
  around.prefix.insert(around.prefix.begin(), before.begin(), before.end());
  around.suffix.insert(around.suffix.end(), after.begin(), after.end());
}

void add_post_processor(const json& value, const std::string& where, Surroundings& around) {
  JsonFields fields(value, where);
  const std::string type = fields.text("type");
  if (type == "Sequence") {
    each_element(fields, "processors",
                 [&](const json& v, const std::string& w) { add_post_processor(v, w, around); });
  } else if (type == "TemplateProcessing") {
    add_template(fields, around);
  } else if (type == "ByteLevel") {
    for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.ignore(key);
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    fields.ignore("trim_offsets"), fields.ignore("add_prefix_space");
    const auto id_of = [&](const char* key) {
      const json& pair = fields.array(key);
      if (pair.size() != 2) fields.fail(concat("'", key, "' must be a token and its id"));
      return parse_id(pair[1], fields);
    };
    around.prefix.insert(around.prefix.begin(), id_of("cls"));
    around.suffix.push_back(id_of("sep"));
  } else {
    unsupported(fields, type);
  }
  fields.finish();
}

}  // namespace

std::vector<NormalizerStep> parse_normalizer(const json& value, const std::string& where) {
  std::vector<NormalizerStep> steps;
  if (!value.is_null()) add_normalizer(value, where, steps);
  return steps;
}

std::vector<PreTokenizerStep> parse_pre_tokenizer(const json& value, const std::string& where) {
  std::vector<PreTokenizerStep> steps;
  if (!value.is_null()) add_pre_tokenizer(value, where, steps);
  return steps;
}

Decoder parse_decoder(const json& value, const std::string& where) {
  if (value.is_null()) return Decoder();
  std::vector<DecoderStep> steps;
  add_decoder(value, where, steps);
  for (size_t i = 0; i + 1 < steps.size(); ++i)
    TRIREME_CHECK(!std::holds_alternative<ReadAlphabet>(steps[i]), where,
                  ": ByteLevel before another decoder is not supported");
  return Decoder(std::move(steps));
}

Surroundings parse_post_processor(const json& value, const std::string& where) {
  Surroundings around;
  if (!value.is_null()) add_post_processor(value, where, around);
  return around;
}

}  // namespace trireme
