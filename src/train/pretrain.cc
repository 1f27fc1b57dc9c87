// The task `pretrain`: next-token prediction on packed text.
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "base/error.h"
#include "base/log.h"
#include "data/samples.h"
#include "data/text_recipe.h"
#include "data/tokenizer/tokenizer.h"
#include "fabric/communicator.h"
#include "infer/generator.h"
#include "model/language_model.h"
#include "train/load_model.h"
#include "train/task.h"
#include "train/text_batch.h"

// Shapes: B samples, S tokens a sample, T = B * S.

namespace trireme {
namespace {

// Held-out windows of one source of a blend, or of all sources where there is no blend.
struct HeldOutSource {
  std::string key;  // of its loss in the metrics
  SampleRange samples;
};

// Bits per byte = total nats / (ln 2 * bytes of the text that the labels stand for).
class TextEvaluation final : public Evaluation {
 public:
  explicit TextEvaluation(const std::vector<HeldOutSource>& sources)
      : sources_(sources), sums_(3 * sources.size()) {}

  void add(size_t set, const std::vector<Batch>& batches, const StepResult& result) override {
    const WeightedSum& loss = result.losses.at("loss");
    double* const sums = &sums_[3 * set];
    sums[kNats] += loss.sum;
    sums[kTokens] += loss.weight;
    for (const Batch& batch : batches)
      sums[kBytes] += static_cast<double>(batch.at("label_bytes").item<int64_t>());
  }

  NamedValues finish(Communicator& data_ranks) override {
    data_ranks.all_reduce_sum(sums_);
    double all[3] = {};
    for (size_t i = 0; i < sums_.size(); ++i) all[i % 3] += sums_[i];
    const double loss = all[kNats] / all[kTokens];
    NamedValues values = {{"loss", loss},
                          {"bits_per_byte", all[kNats] / (std::numbers::ln2 * all[kBytes])},
                          {"perplexity", std::exp(loss)}};
    for (size_t s = 0; s < sources_.size() && sources_.size() > 1; ++s)
      values.emplace_back(sources_[s].key, sums_[3 * s + kNats] / sums_[3 * s + kTokens]);
    return values;
  }

 private:
  enum { kNats, kTokens, kBytes };
  const std::vector<HeldOutSource>& sources_;
  std::vector<double> sums_;  // [sources, 3]
};

class Pretrain final : public Task {
 public:
  explicit Pretrain(const Recipe& recipe)
      : from_(stored_model(recipe, storage_)),
        corpus_(open_or_build(corpus_of(recipe), log_build_progress())),
        tokenizer_(Tokenizer::load(corpus_.tokenizer_path())),
        dtype_(recipe.text("precision.compute") == "fp64" ? at::kDouble : at::kFloat),
        sequence_(recipe.integer("data.sequence")),
        seed_(static_cast<uint64_t>(recipe.integer("run.seed"))),
        train_(corpus_, sample_options(recipe, Split::train)),
        family_(from_ ? std::move(from_->family) : make_language_model(recipe, corpus_.vocab())),
        model_(family_->build(dtype_, sequence_)),
        sample_texts_(recipe.integer("eval.samples")) {
    if (from_) check_start(recipe);
    attachments_ = make_attachments();
    if (recipe.number("data.held_out") > 0) {
      held_out_.emplace(corpus_, sample_options(recipe, Split::held_out));
      choose_held_out(recipe);
    }
    if (sample_texts_ > 0) {
      sample_tokens_ = recipe.integer("eval.sample_tokens");
      prompts_ = recipe.texts("eval.prompts");
    }
    words_ = {
        .unit = "tokens",
        .loss_unit = "nats per token",
        .subtitle = concat("A language model of ",
                           format_count(static_cast<uint64_t>(model_.parameter_count())),
                           " parameters, trained to continue text."),
        .mfu_convention =
            "6 FLOPs a matmul parameter and token, causal attention counted by its half",
        .held_out = {
            {"bits_per_byte", "bits per byte"}, {"loss", "loss"}, {"perplexity", "perplexity"}}};
    for (const auto& [name, value] : family_->summary()) words_.model.push_back({name, value});
    words_.model.push_back(
        {"parameters", format_count(static_cast<uint64_t>(model_.parameter_count()))});
    words_.model.push_back({"training samples", concat(format_count(train_.samples_per_epoch()),
                                                       " of ", sequence_, " tokens an epoch")});
    uint64_t held_out_samples = 0;
    for (const HeldOutSource& source : held_out_sources_)
      held_out_samples += source.samples.end - source.samples.begin;
    words_.model.push_back({"held-out samples", format_count(held_out_samples)});
    for (const HeldOutSource& source : held_out_sources_)
      if (held_out_sources_.size() > 1) words_.held_out.push_back({source.key, source.key});
  }

  const Model& model() const override { return model_; }
  at::ScalarType dtype() const override { return dtype_; }
  const TaskWords& words() const override { return words_; }
  int64_t units_per_sample() const override { return sequence_; }
  double training_flops_per_sample() const override {
    return family_->training_flops_per_token(sequence_) * static_cast<double>(sequence_);
  }

  uint64_t samples_per_epoch() const override { return train_.samples_per_epoch(); }
  Batch train_batch(uint64_t first, int64_t count) const override {
    return text_batch(train_, ~uint64_t{0}, first, count);
  }
  double weight_of(const Batch& batch) const override {
    return static_cast<double>(batch.at("valid").item<int64_t>());
  }

  std::vector<SampleRange> held_out_sets() const override {
    std::vector<SampleRange> sets;
    for (const HeldOutSource& source : held_out_sources_) sets.push_back(source.samples);
    return sets;
  }
  Batch held_out_batch(uint64_t first, int64_t count, uint64_t end) const override {
    return text_batch(*held_out_, end, first, count);
  }
  Want evaluation_wants() const override { return Want::loss; }
  std::unique_ptr<Evaluation> begin_evaluation() const override {
    return std::make_unique<TextEvaluation>(held_out_sources_);
  }

  std::vector<SampleText> write_samples(RunningModel running) const override;
  const Checkpoint* start() const override { return from_ ? &from_->checkpoint : nullptr; }
  Attachments attachments() const override { return attachments_; }

 private:
  static std::optional<StoredModel> stored_model(const Recipe& recipe, Storage& storage) {
    if (!recipe.has("model.from")) return std::nullopt;
    return open_model(storage, recipe.text("model.from"));
  }
  void choose_held_out(const Recipe& recipe);
  void check_start(const Recipe& recipe) const;

  Attachments make_attachments() const;

  PosixStorage storage_;
  std::optional<StoredModel> from_;  // without its family
  Corpus corpus_;
  Tokenizer tokenizer_;
  at::ScalarType dtype_;
  int64_t sequence_;
  uint64_t seed_;
  TextSamples train_;
  std::optional<TextSamples> held_out_;
  std::vector<HeldOutSource> held_out_sources_;
  std::unique_ptr<LanguageModel> family_;
  Model model_;
  int64_t sample_texts_, sample_tokens_ = 0;
  std::vector<std::string> prompts_;
  TaskWords words_;
  Attachments attachments_;
};

// A source with no document held out has no set.
void Pretrain::choose_held_out(const Recipe& recipe) {
  const std::vector<Record> sources = recipe.records("data.source");
  const auto most = static_cast<uint64_t>(recipe.integer("eval.max_samples"));
  for (uint64_t part = 0; part < corpus_.parts(); ++part) {
    auto [begin, end] = held_out_->range_of(part);
    if (most > 0) end = std::min(end, begin + most);
    if (begin < end)
      held_out_sources_.push_back({concat("loss/", sources[part].text("path")), {begin, end}});
  }
}

// Prompts of the recipe in turn; without any, a text begins as a document does: with its begin of
// text, else after an end of text.
std::vector<SampleText> Pretrain::write_samples(RunningModel running) const {
  std::vector<SampleText> texts;
  if (sample_texts_ == 0) return texts;
  std::vector<std::vector<int32_t>> prompts;
  size_t longest = 1;
  const std::optional<int32_t> first = corpus_.begin_of_text();
  for (const std::string& prompt : prompts_) {
    prompts.emplace_back();
    if (first && !prompt.empty()) prompts.back().push_back(*first);
    tokenizer_.encode(prompt, prompts.back());
    longest = std::max(longest, prompts.back().size());
  }
  const auto capacity = static_cast<int64_t>(longest) + sample_tokens_;
  // Positions beyond the trained ones need rotary tables of their own length.
  const Model longer = family_->build(dtype_, std::max(capacity, sequence_));
  Generator generator(*family_, longer, running.parameters, running.lanes, running.groups,
                      running.mode, capacity);
  const GenerationOptions options{.sampling = {.temperature = 0.8, .top_p = 0.95, .seed = seed_},
                                  .max_tokens = sample_tokens_,
                                  .end_tokens = {corpus_.end_of_text()}};
  for (int64_t i = 0; i < sample_texts_; ++i) {
    const bool given =
        !prompts.empty() && !prompts[static_cast<size_t>(i) % prompts.size()].empty();
    const auto which = given ? static_cast<size_t>(i) % prompts.size() : 0;
    const std::vector<int32_t> begin =
        given ? prompts[which] : std::vector<int32_t>{first.value_or(corpus_.end_of_text())};
    const auto ids = generator.generate({&begin, 1}, options, static_cast<uint64_t>(i))[0].ids();
    texts.push_back({0, given ? prompts_[which] : "", tokenizer_.decode(ids)});
  }
  return texts;
}

void Pretrain::check_start(const Recipe& recipe) const {
  TRIREME_CHECK(sequence_ <= family_->max_positions(), recipe.where("data.sequence"),
                ": data.sequence = ", sequence_, ", but ", from_->origin(), " takes at most ",
                family_->max_positions(), " tokens");
  const bool named = recipe.has("data.tokenizer") || recipe.has("data.tokenizer.train");
  TRIREME_CHECK(corpus_.vocab() <= family_->vocab(),
                recipe.where(recipe.has("data.tokenizer")         ? "data.tokenizer"
                             : recipe.has("data.tokenizer.train") ? "data.tokenizer.train"
                                                                  : "model.from"),
                ": the tokenizer has ", corpus_.vocab(), " ids, and ", from_->origin(), " only ",
                family_->vocab(),
                named ? "\nnext: leave the tokenizer out to take the model's" : "");
  const auto bos = from_->config.find("bos_token_id");
  if (corpus_.begin_of_text() || bos == from_->config.end() || !bos->is_number_integer()) return;
  const auto id = bos->get<int64_t>();
  if (id == corpus_.end_of_text() || id < 0 || id >= corpus_.vocab()) return;
  log_warning(concat("documents begin without ", tokenizer_.token_of(static_cast<int32_t>(id)),
                     ", which config.json of ", from_->origin(),
                     " names as its BOS; data.bos puts it before each"));
}

// A model that goes on with its own tokenizer stays what it was in everything but the weights.
Attachments Pretrain::make_attachments() const {
  nlohmann::ordered_json config = from_ ? from_->config : nlohmann::ordered_json(family_->config());
  const char* type = dtype_ == at::kDouble ? "float64" : "float32";
  config[config.contains("dtype") ? "dtype" : "torch_dtype"] = type;
  if (from_ && from_->tokenizer && from_->tokenizer->fingerprint() == tokenizer_.fingerprint()) {
    Attachments kept;
    for (const std::string& name : from_->checkpoint.attachments())
      kept[name] = from_->checkpoint.attachment(name);
    kept["config.json"] = config.dump(2) + "\n";
    return kept;
  }
  config["eos_token_id"] = corpus_.end_of_text();
  config["bos_token_id"] = corpus_.begin_of_text().value_or(corpus_.end_of_text());
  nlohmann::json tokenizer_config = {
      {"tokenizer_class", "PreTrainedTokenizerFast"},
      {"eos_token", std::string(tokenizer_.token_of(corpus_.end_of_text()))},
      {"model_max_length", family_->max_positions()}};
  if (const auto begin = corpus_.begin_of_text()) {
    tokenizer_config["add_bos_token"] = true;
    tokenizer_config["bos_token"] = std::string(tokenizer_.token_of(*begin));
  }
  return {{"config.json", config.dump(2) + "\n"},
          {"tokenizer.json", tokenizer_.to_json()},
          {"tokenizer_config.json", tokenizer_config.dump(2) + "\n"}};
}

}  // namespace

std::unique_ptr<Task> make_pretrain_task(const Recipe& recipe) {
  return std::make_unique<Pretrain>(recipe);
}

}  // namespace trireme
