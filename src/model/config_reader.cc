#include "model/config_reader.h"

#include <cmath>

#include "base/log.h"

namespace trireme {
namespace {

// Keys of every model's configuration in transformers that say what the model is called, how it is
// stored and how it likes to be sampled.
constexpr const char* kHarmless[] = {
    "_name_or_path",
    "architectures",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "id2label",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
};

// Keys of every model's configuration that would make it another one.
constexpr const char* kMustBeOff[] = {
    "add_cross_attention", "chunk_size_feed_forward", "cross_attention_hidden_size",
    "is_decoder",          "is_encoder_decoder",      "pruned_heads",
    "tie_encoder_decoder",
};

bool is_off(const nlohmann::json& value) {
  return value.is_null() || value == false || value == 0 || (value.is_object() && value.empty());
}

}  // namespace

std::string shown_text(std::string_view text) {
  constexpr size_t kMost = 80;
  std::string out;
  for (const char c : text.substr(0, kMost))
    out += static_cast<unsigned char>(c) < ' ' || c == 127 ? '?' : c;
  if (text.size() <= kMost) return out;
  while (!out.empty() && (out.back() & 0x80)) out.pop_back();
  return out + "…";
}

std::string shown_value(const nlohmann::json& value) { return shown_text(value.dump()); }

ConfigReader::ConfigReader(const nlohmann::json& config, std::string origin, std::string family)
    : config_(config), origin_(std::move(origin)), family_(std::move(family)) {
  for (const char* key : kHarmless) read_.insert(key);
  for (const char* key : kMustBeOff) {
    read_.insert(key);
    const auto at = config_.find(key);
    TRIREME_CHECK(at == config_.end() || is_off(*at), where(key), " = ", shown_value(*at),
                  " is not supported");
  }
}

const nlohmann::json* ConfigReader::find(const char* key) {
  read_.insert(key);
  const auto at = config_.find(key);
  return at == config_.end() || at->is_null() ? nullptr : &*at;
}

int64_t ConfigReader::size(const char* key, std::optional<int64_t> absent) {
  const nlohmann::json* value = find(key);
  TRIREME_CHECK(value || absent, where(key), " is missing");
  if (!value) return *absent;
  if (!value->is_number_integer()) wrong_type(key, "an integer");
  constexpr int64_t kMost = int64_t{1} << 32;
  const bool fits = value->is_number_unsigned()
                        ? value->get<uint64_t>() - 1 < static_cast<uint64_t>(kMost)
                        : value->get<int64_t>() >= 1 && value->get<int64_t>() <= kMost;
  TRIREME_CHECK(fits, where(key), " must be a size of at least 1, got ", shown_value(*value));
  return value->get<int64_t>();
}

double ConfigReader::positive(const char* key, std::optional<double> absent) {
  const nlohmann::json* value = find(key);
  TRIREME_CHECK(value || absent, where(key), " is missing");
  if (!value) return *absent;
  if (!value->is_number()) wrong_type(key, "a number");
  const double number = value->get<double>();
  TRIREME_CHECK(std::isfinite(number) && number > 0, where(key), " must be above 0, got ",
                shown_value(*value));
  return number;
}

bool ConfigReader::flag(const char* key, std::optional<bool> absent) {
  const nlohmann::json* value = find(key);
  TRIREME_CHECK(value || absent, where(key), " is missing");
  if (!value) return *absent;
  if (!value->is_boolean()) wrong_type(key, "true or false");
  return value->get<bool>();
}

std::string ConfigReader::text(const char* key, std::optional<std::string> absent) {
  const nlohmann::json* value = find(key);
  TRIREME_CHECK(value || absent, where(key), " is missing");
  if (!value) return *absent;
  if (!value->is_string()) wrong_type(key, "a text");
  return value->get<std::string>();
}

void ConfigReader::dropout(const char* key) {
  const nlohmann::json* value = find(key);
  if (!value) return;
  if (!value->is_number()) wrong_type(key, "a number");
  if (value->get<double>() > 0)
    log_warning(
        concat(where(key), " = ", shown_value(*value), " is not applied: there is no dropout"));
}

void ConfigReader::harmless(std::initializer_list<const char*> keys) {
  read_.insert(keys.begin(), keys.end());
}

std::string ConfigReader::where(const std::string& key) const {
  return concat(origin_, ": \"", key, "\"");
}

void ConfigReader::wrong_type(const char* key, const char* wanted) const {
  throw InputError(concat(where(key), " has the wrong type: ", shown_value(config_.at(key)),
                          "; expected ", wanted));
}

void ConfigReader::finish() const {
  for (const auto& [key, value] : config_.items())
    TRIREME_CHECK(read_.contains(key), where(shown_text(key)), " is not known to the family ",
                  family_);
}

}  // namespace trireme
