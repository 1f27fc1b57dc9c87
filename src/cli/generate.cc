#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "cli/json_lines.h"
#include "cli/process.h"
#include "cli/verbs.h"
#include "infer/generator.h"
#include "train/load_model.h"

namespace trireme {
namespace {

using Line = nlohmann::ordered_json;

struct Options {
  std::string model, prompts, out;
  std::optional<std::string> prompt;
  GenerationOptions generation;
  std::vector<std::string> stop;
  int64_t batch = 8;  // as many as read the weights once together
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool stats = false;
};

// The text behind a prompt while its tokens come, cut before the first stop string.
class ContinuedText {
 public:
  // Both arguments outlive it. Some tokenizers write a token otherwise where a text begins, so the
  // decoder reads the prompt too, and its bytes are left out.
  ContinuedText(const Tokenizer& tokenizer, std::span<const int32_t> prompt,
                const std::vector<std::string>& stops)
      : decoder_(tokenizer, true), stops_(stops), skip_(tokenizer.decode(prompt, true).size()) {
    for (int32_t id : prompt) add(decoder_.push(id));
  }

  // False once a stop string has come.
  bool push(int32_t id) { return add(decoder_.push(id)); }
  void finish() {
    if (!stopped_) add(decoder_.finish());
  }

  bool stopped() const { return stopped_; }
  const std::string& text() const { return text_; }

  // How much of the text no stop string can take back.
  size_t settled() const {
    size_t open = 0;  // the longest end of the text that could be the beginning of one
    for (const std::string& stop : stops_)
      for (size_t n = std::min(stop.size() - 1, text_.size()); n > open; --n)
        if (text_.ends_with(std::string_view(stop).substr(0, n))) open = n;
    return text_.size() - open;
  }

 private:
  bool add(std::string_view piece) {
    const size_t left_out = std::min(skip_, piece.size());
    skip_ -= left_out;
    const size_t before = text_.size();
    text_ += piece.substr(left_out);
    size_t cut = std::string::npos;
    for (const std::string& stop : stops_)
      cut = std::min(cut, text_.find(stop, before - std::min(before, stop.size() - 1)));
    if (cut == std::string::npos) return true;
    text_.resize(cut);
    return !(stopped_ = true);
  }

  StreamDecoder decoder_;
  const std::vector<std::string>& stops_;
  size_t skip_;  // bytes of the prompt that are still to come
  std::string text_;
  bool stopped_ = false;
};

struct Prompt {
  Line line;  // of the input, with what else it says
  std::vector<int32_t> ids;
};

Prompt read_prompt(const nlohmann::json& value, const LoadedModel& loaded,
                   const std::string& where) {
  static constexpr const char* kWritten[] = {"text", "ids", "log_probs", "sampling_log_probs",
                                             "finish"};
  static constexpr const char* kOptions[] = {"max_tokens", "temperature",        "top_k", "top_p",
                                             "min_p",      "repetition_penalty", "seed",  "stop"};
  TRIREME_CHECK(value.is_object() && value.contains("prompt"), where,
                ": expected an object with a \"prompt\"");
  for (const char* key : kWritten)
    TRIREME_CHECK(!value.contains(key), where, ": \"", key, "\" is what generate writes");
  for (const char* key : kOptions)
    TRIREME_CHECK(!value.contains(key), where, ": \"", key,
                  "\" is an option of the command line, for all prompts alike");
  Prompt prompt{.line = {{"prompt", value["prompt"]}}, .ids = {}};
  prompt.line.update(value);
  const nlohmann::json& text = value["prompt"];
  if (text.is_array()) {
    prompt.ids = read_ids(text, loaded.family->vocab(), where);
  } else {
    TRIREME_CHECK(text.is_string(), where, ": \"prompt\" must be a text or a list of ids, found ",
                  text.type_name());
    TRIREME_CHECK(loaded.tokenizer, where, ": ", loaded.origin,
                  " has no tokenizer.json; give the prompt as a list of ids");
    prompt.ids = loaded.encode(text.get_ref<const std::string&>());
  }
  if (prompt.ids.empty()) {
    TRIREME_CHECK(loaded.start_token, where, ": the prompt is empty, and ", loaded.origin,
                  " names no token that begins a text");
    prompt.ids.push_back(*loaded.start_token);
  }
  const int32_t largest = std::ranges::max(prompt.ids);
  TRIREME_CHECK(largest < loaded.family->vocab(), where, ": token ", largest,
                " is outside the model's vocabulary of ", loaded.family->vocab());
  const auto tokens = static_cast<int64_t>(prompt.ids.size()),
             most = loaded.family->max_positions();
  TRIREME_CHECK(tokens < most, where, ": the prompt has ", tokens, " tokens, and ", loaded.origin,
                " reads at most ", most, ", what it writes included");
  return prompt;
}

// The lines of results, in the order of the prompts whichever ends first.
class ResultLines {
 public:
  // All arguments outlive it.
  ResultLines(const Options& options, const LoadedModel& loaded, std::span<const Prompt> prompts,
              JsonLinesWriter& writer)
      : options_(options), loaded_(loaded), prompts_(prompts), writer_(writer) {}

  bool token(size_t index, const SampledToken& token) {
    ++tokens_;
    return !loaded_.tokenizer || text_of(index).push(token.id);
  }

  void done(size_t index, const Generated& generated) {
    Line line = prompts_[index].line;
    line["text"] = nullptr;
    bool stopped = false;
    if (loaded_.tokenizer) {
      ContinuedText& text = text_of(index);
      text.finish();
      line["text"] = text.text();
      stopped = text.stopped();
      texts_.erase(index);
    }
    line["ids"] = generated.ids();
    Line log_probs = Line::array(), sampling = Line::array();
    for (const SampledToken& token : generated.tokens) {
      log_probs.push_back(token.log_prob);
      sampling.push_back(token.sampling_log_prob);
    }
    line["log_probs"] = std::move(log_probs);
    line["sampling_log_probs"] = std::move(sampling);
    line["finish"] = stopped                                      ? "stop"
                     : generated.finish == Generated::Finish::end ? "end"
                                                                  : "length";
    waiting_.emplace(index, std::move(line));
    for (; !waiting_.empty() && waiting_.begin()->first == written_; ++written_) {
      writer_.add(waiting_.begin()->second);
      waiting_.erase(waiting_.begin());
    }
    progress_.show(++ended_, prompts_.size(), concat(format_count(tokens_), " tokens"));
  }

 private:
  ContinuedText& text_of(size_t index) {
    return texts_.try_emplace(index, *loaded_.tokenizer, prompts_[index].ids, options_.stop)
        .first->second;
  }

  const Options& options_;
  const LoadedModel& loaded_;
  std::span<const Prompt> prompts_;
  JsonLinesWriter& writer_;
  std::map<size_t, ContinuedText> texts_;  // of those that are being generated
  std::map<size_t, Line> waiting_;         // for one before them
  size_t written_ = 0, ended_ = 0;
  uint64_t tokens_ = 0;
  Progress progress_{"prompt"};
};

// One text to stdout as it comes.
void stream(Generator& generator, const LoadedModel& loaded, const Options& options,
            const std::vector<int32_t>& prompt) {
  ContinuedText text(*loaded.tokenizer, prompt, options.stop);
  size_t shown = 0;
  const auto show = [&](size_t end) {
    std::fwrite(text.text().data() + shown, 1, end - shown, stdout);
    std::fflush(stdout);
    shown = end;
  };
  std::fputs(options.prompt->c_str(), stdout);
  show(0);
  generator.generate({&prompt, 1}, options.generation, 0,
                     {.on_token = [&](size_t, const SampledToken& token) {
                       const bool more = text.push(token.id);
                       show(std::max(shown, text.settled()));
                       return more && !std::ferror(stdout);
                     }});
  text.finish();
  show(text.text().size());
  std::fputc('\n', stdout);
}

int generate(Options& options) {
  const std::vector<JsonLine> lines =
      options.prompt ? std::vector<JsonLine>{{"generate", {{"prompt", *options.prompt}}}}
                     : read_json_lines(options.prompts);
  JsonLinesWriter writer(options.out);
  const LoadedModel loaded = load_model(options.model, 1, 1);
  TRIREME_CHECK(loaded.tokenizer || options.stop.empty(),
                "generate: --stop needs a tokenizer, and ", loaded.origin,
                " has no tokenizer.json");
  options.generation.end_tokens = loaded.end_tokens;
  std::vector<Prompt> prompts;
  std::vector<std::vector<int32_t>> ids;
  size_t longest = 0;
  for (const JsonLine& line : lines) {
    prompts.push_back(read_prompt(line.value, loaded, line.where));
    ids.push_back(prompts.back().ids);
    longest = std::max(longest, ids.back().size());
  }
  const int64_t capacity = std::min(static_cast<int64_t>(longest) + options.generation.max_tokens,
                                    loaded.family->max_positions());
  const Model model = loaded.family->build(at::kFloat, capacity);
  const auto lanes = generation_lanes(options.threads);
  Generator generator(*loaded.family, model, *loaded.parameters, *lanes, {}, kernel::Mode::fused,
                      capacity, std::min(options.batch, static_cast<int64_t>(prompts.size())));
  if (options.prompt && options.out.empty()) {
    stream(generator, loaded, options, ids[0]);
  } else {
    ResultLines results(options, loaded, prompts, writer);
    generator.generate(
        ids, options.generation, 0,
        {.on_token = [&](size_t index, const SampledToken& t) { return results.token(index, t); },
         .on_done = [&](size_t index, const Generated& all) { results.done(index, all); }});
    writer.commit();
  }
  if (options.stats) {
    const GenerationTimes& times = generator.times();
    std::fprintf(stderr,
                 "{\"prompt_tokens\": %lld, \"prompt_seconds\": %.6f, \"steps\": %lld, "
                 "\"step_tokens\": %lld, \"step_seconds\": %.6f}\n",
                 static_cast<long long>(times.prompt_tokens), times.prompt_seconds,
                 static_cast<long long>(times.steps), static_cast<long long>(times.step_tokens),
                 times.step_seconds);
  }
  return 0;
}

}  // namespace

Run declare_generate(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  auto& sampling = options->generation.sampling;
  app.add_option("MODEL", options->model, "a run, a checkpoint, or a Hugging Face directory")
      ->required();
  auto* prompt = app.add_option("--prompt", options->prompt, "text to continue")->type_name("TEXT");
  app.add_option("--prompts", options->prompts,
                 "JSON lines with a \"prompt\", a text or a list of ids; -: from stdin")
      ->type_name("FILE.jsonl")
      ->excludes(prompt);
  app.add_option("--out", options->out,
                 "write results as JSON lines here; without it those of --prompts go to stdout")
      ->type_name("FILE.jsonl");
  app.add_option("--max-tokens", options->generation.max_tokens,
                 "tokens to generate for each prompt, at most")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
  app.add_option("--temperature", sampling.temperature, "0 takes the most probable token")
      ->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "choose among the k most probable; 0: all")
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "choose among the fewest that reach this probability")
      ->capture_default_str();
  app.add_option("--min-p", sampling.min_p,
                 "leave out what is less probable than this share of the best")
      ->capture_default_str();
  app.add_option("--repetition-penalty", sampling.repetition_penalty,
                 "above 1 makes tokens that the text has already less probable")
      ->capture_default_str();
  app.add_option("--seed", sampling.seed, "seed of the sampling")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--stop", options->stop, "end before this text; may be given several times")
      ->allow_extra_args(false);
  app.add_option("--batch", options->batch, "prompts that are continued side by side")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{4096}));
  app.add_option("--threads", options->threads, "threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_flag("--stats", options->stats, "print counts and seconds as JSON to stderr");
  return [options] {
    check(options->generation.sampling);
    TRIREME_CHECK(std::ranges::none_of(options->stop, &std::string::empty),
                  "generate: --stop must not be empty");
    TRIREME_CHECK(options->prompt || !options->prompts.empty(),
                  "generate: nothing to continue: --prompt or --prompts is required"
                  "\nnext: trireme generate --help");
    prepare_process();
    return generate(*options);
  };
}

}  // namespace trireme
