#include "train/load_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "data/text_recipe.h"
#include "data/tokenizer/train.h"
#include "state/hugging_face.h"
#include "state/tensor_stream.h"
#include "train/run_directory.h"
#include "train/saving.h"

namespace trireme {
namespace {

using json = nlohmann::ordered_json;

bool has(const Checkpoint& checkpoint, std::string_view name) {
  const auto names = checkpoint.attachments();
  return std::ranges::find(names, name) != names.end();
}

json attached_object(const Checkpoint& checkpoint, const char* name) {
  const std::string origin = (checkpoint.path() / name).string();
  json object = parse_json<json>(checkpoint.attachment(name), origin);
  TRIREME_CHECK(object.is_object(), origin, " is no JSON object");
  return object;
}

// The parameter that an output matrix is tied to, by name; "" if it is one of its own.
std::string tied_parameter(const Model& model) {
  for (const ModelNode& node : model.nodes)
    for (const TiedWeight& tied : node.block->tied())
      return model.block(tied.owner).weights()[static_cast<size_t>(tied.weight)].parts[0].name;
  return "";
}

bool equal_content(const Checkpoint& checkpoint, const TensorRecord& a, const TensorRecord& b) {
  if (a.shape != b.shape || a.dtype != b.dtype) return false;
  TensorStream in_a(checkpoint, a, a.dtype), in_b(checkpoint, b, b.dtype);
  std::vector<std::byte> bytes_a(1 << 20), bytes_b(1 << 20);
  while (in_a.bytes_left() > 0) {
    const auto n = std::min(bytes_a.size(), static_cast<size_t>(in_a.bytes_left()));
    in_a.read(std::span(bytes_a).first(n));
    in_b.read(std::span(bytes_b).first(n));
    if (!std::equal(bytes_a.begin(), bytes_a.begin() + static_cast<std::ptrdiff_t>(n),
                    bytes_b.begin()))
      return false;
  }
  return true;
}

// Computed from the configuration, and kept in files that older versions of transformers wrote.
bool is_buffer(std::string_view name) {
  static constexpr std::string_view kBuffers[] = {".rotary_emb.inv_freq", ".attn.bias",
                                                  ".attn.masked_bias"};
  return std::ranges::any_of(kBuffers, [&](auto end) { return name.ends_with(end); });
}

// Names as the model has them. Whatever it does not know keeps its name, for others to refuse.
Checkpoint with_names_of(const Model& model, Checkpoint checkpoint) {
  std::set<std::string, std::less<>> wanted;
  for (const ModelNode& node : model.nodes)
    for (const WeightSpec& weight : node.block->weights())
      for (const ParameterSpec& part : weight.parts) wanted.insert(part.name);
  const auto free = [&](const std::string& name) {
    return wanted.contains(name) && !checkpoint.find(name);
  };
  const auto known_as = [&](const std::string& name) -> std::string {
    for (const std::string prefix : {"model.", "transformer."}) {
      if (free(prefix + name)) return prefix + name;
      if (name.starts_with(prefix) && free(name.substr(prefix.size())))
        return name.substr(prefix.size());
    }
    return name;
  };
  std::map<std::string, std::optional<std::string>> names;
  for (const TensorRecord& tensor : checkpoint.tensors())
    if (tensor.kind == "weight" && !wanted.contains(tensor.name))
      names[tensor.name] =
          is_buffer(tensor.name) ? std::nullopt : std::optional(known_as(tensor.name));
  constexpr const char* kHead = "lm_head.weight";
  if (const auto head = names.find(kHead); head != names.end() && head->second == kHead)
    if (const std::string owner = tied_parameter(model); !owner.empty()) {
      const auto stored_as_owner = [&](const TensorRecord& tensor) {
        const auto renamed = names.find(tensor.name);
        return (renamed == names.end() ? tensor.name : renamed->second) == owner;
      };
      const auto embedding = std::ranges::find_if(checkpoint.tensors(), stored_as_owner);
      TRIREME_CHECK(embedding != checkpoint.tensors().end() &&
                        equal_content(checkpoint, *checkpoint.find(kHead), *embedding),
                    checkpoint.path().string(), ": config.json ties ", kHead, " to ", owner,
                    ", but the two are stored with different values"
                    "\nnext: set \"tie_word_embeddings\" in config.json to what was trained");
      head->second = std::nullopt;
    }
  if (names.empty()) return checkpoint;
  return std::move(checkpoint).renamed([&](const TensorRecord& tensor) {
    const auto renamed = names.find(tensor.name);
    return renamed == names.end() ? std::optional(tensor.name) : renamed->second;
  });
}

}  // namespace

std::optional<std::vector<int32_t>> StoredModel::configured_ids(const char* key) const {
  std::vector<json> said;
  if (has(checkpoint, "generation_config.json"))
    said.push_back(attached_object(checkpoint, "generation_config.json"));
  said.push_back(config);
  for (const json& object : said) {
    const auto value = object.find(key);
    if (value == object.end() || value->is_null()) continue;
    std::vector<int32_t> ids;
    for (const json& id : value->is_array() ? *value : json::array({*value})) {
      TRIREME_CHECK(
          id.is_number_integer() && id.get<int64_t>() >= -1 && id.get<int64_t>() < int64_t{1} << 31,
          origin(), ": \"", key, "\" is no id: ", id.dump());
      if (id.get<int64_t>() >= 0) ids.push_back(id.get<int32_t>());
    }
    return ids;
  }
  return std::nullopt;
}

std::vector<int32_t> StoredModel::end_tokens() const {
  if (auto ids = configured_ids("eos_token_id")) return *std::move(ids);
  if (tokenizer && tokenizer->end_of_text()) return {*tokenizer->end_of_text()};
  return {};
}

Boundaries StoredModel::boundaries() const {
  constexpr const char* kConfig = "tokenizer_config.json";
  return boundaries_of(*tokenizer, has(checkpoint, kConfig) ? checkpoint.attachment(kConfig) : "",
                       concat(origin(), "/", kConfig));
}

std::optional<int32_t> StoredModel::start_token() const {
  if (const auto ids = configured_ids("bos_token_id"); ids && !ids->empty()) return ids->front();
  return tokenizer ? tokenizer->end_of_text() : std::nullopt;
}

StoredModel open_model(Storage& storage, const std::string& path) {
  Checkpoint checkpoint = open_tensors(storage, fs::exists(path) ? fs::path(path) : find_run(path));
  const std::string origin = checkpoint.path().string();
  TRIREME_CHECK(has(checkpoint, "config.json"), origin,
                " has no config.json, so it is no language model");
  json config = attached_object(checkpoint, "config.json");
  auto family = load_language_model(nlohmann::json(config), origin + "/config.json");
  std::optional<Tokenizer> tokenizer;
  if (has(checkpoint, "tokenizer.json"))
    tokenizer.emplace(
        Tokenizer::parse(checkpoint.attachment("tokenizer.json"), origin + "/tokenizer.json"));
  const Model names = family->build(at::kFloat, 1);
  StoredModel stored{with_names_of(names, std::move(checkpoint)), std::move(config),
                     std::move(family), std::move(tokenizer)};
  require_weights(stored.checkpoint, names);
  return stored;
}

std::vector<int32_t> LoadedModel::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  if (!boundaries.begin.empty()) ids.push_back(*tokenizer->id_of(boundaries.begin));
  const size_t begin = ids.size();
  tokenizer->encode(text, ids);
  if (begin > 0 && ids.size() > begin && ids[begin] == ids[0]) ids.erase(ids.begin());
  return ids;
}

LoadedModel load_model(const std::string& path, int64_t sequence, int threads,
                       at::ScalarType dtype) {
  PosixStorage storage;
  StoredModel stored = open_model(storage, path);
  LoadedModel loaded{.origin = stored.origin(),
                     .start_token = stored.start_token(),
                     .end_tokens = stored.end_tokens()};
  loaded.model =
      stored.family->build(dtype, sequence > 0 ? sequence : stored.family->max_positions());
  loaded.lanes = std::make_unique<Lanes>(threads, false, nullptr);
  loaded.parameters = std::make_unique<Parameters>(loaded.model, dtype, Mesh(), 0, false, threads);
  load_checkpoint(stored.checkpoint, loaded.model, {*loaded.parameters});
  if (stored.tokenizer) loaded.boundaries = stored.boundaries();
  loaded.family = std::move(stored.family);
  loaded.tokenizer = std::move(stored.tokenizer);
  return loaded;
}

CorpusOptions corpus_of(const Recipe& recipe) {
  CorpusOptions options = corpus_options(recipe);
  if (options.train_vocab > 0) {
    if (options.end_of_text.empty()) options.end_of_text = BpeTraining().special_tokens[0];
    return options;
  }
  if (options.tokenizer.empty()) {
    PosixStorage storage;
    const std::string& from = recipe.text("model.from");
    const Checkpoint checkpoint =
        open_tensors(storage, fs::exists(from) ? fs::path(from) : find_run(from));
    options.tokenizer = checkpoint.path() / "tokenizer.json";
    TRIREME_CHECK(has(checkpoint, "tokenizer.json"), recipe.where("model.from"), ": ",
                  checkpoint.path().string(), " has no tokenizer.json",
                  "\nnext: name one by data.tokenizer, or convert an old kind with transformers'"
                  " AutoTokenizer and save_pretrained()");
  }
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  const auto known = [&](const char* key, const std::string& token) {
    TRIREME_CHECK(token.empty() || tokenizer.id_of(token), recipe.where(key), ": ", key, " = ",
                  token, ", but ", options.tokenizer.string(), " has no such token");
  };
  if (recipe.has("data.bos")) known("data.bos", options.begin_of_text);
  if (recipe.has("data.eos")) known("data.eos", options.end_of_text);
  if (recipe.has("data.bos") && recipe.has("data.eos")) return options;
  const Boundaries own = boundaries_beside(tokenizer, options.tokenizer);
  if (!recipe.has("data.bos")) options.begin_of_text = own.begin;
  if (!recipe.has("data.eos")) options.end_of_text = own.end;
  return options;
}

void derive_boundaries(Recipe& recipe) {
  const CorpusOptions options = corpus_of(recipe);
  if (!recipe.has("data.bos"))
    recipe.set_derived(
        "data.bos", options.begin_of_text.empty() ? std::string(kNoToken) : options.begin_of_text);
  if (!recipe.has("data.eos") && !options.end_of_text.empty())
    recipe.set_derived("data.eos", options.end_of_text);
}

}  // namespace trireme
