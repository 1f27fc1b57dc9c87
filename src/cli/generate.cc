#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/json_lines.h"
#include "cli/process.h"
#include "cli/verbs.h"
#include "infer/generator.h"
#include "train/load_model.h"

namespace trireme {
namespace {

struct Options {
  std::string model, prompt, prompts, out;
  GenerationOptions generation;
  std::vector<std::string> stop;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool fp64 = false;
};

// What one prompt became. Text is cut before the first stop string.
struct Continuation {
  std::vector<int32_t> ids;
  std::string text;
  std::string ended;  // "end", "length" or "stop"
};

// The length of the longest end of `text` that could be the beginning of a stop string: not to be
// shown yet.
size_t held_back(const std::string& text, const std::vector<std::string>& stops) {
  size_t most = 0;
  for (const std::string& stop : stops)
    for (size_t n = std::min(stop.size() - 1, text.size()); n > most; --n)
      if (text.ends_with(stop.substr(0, n))) most = n;
  return most;
}

Continuation continue_text(Generator& generator, const Tokenizer& tokenizer,
                           const std::vector<int32_t>& prompt, const Options& options,
                           uint64_t sequence, bool stream) {
  Continuation result{.ended = "length"};
  StreamDecoder decoder(tokenizer, true);
  size_t shown = 0;
  const auto show = [&](size_t end) {
    if (!stream || end <= shown) return;
    std::fwrite(result.text.data() + shown, 1, end - shown, stdout);
    std::fflush(stdout);
    shown = end;
  };
  const auto take = [&](const std::string& piece) {
    result.text += piece;
    size_t cut = std::string::npos;
    for (const std::string& stop : options.stop) cut = std::min(cut, result.text.find(stop));
    if (cut != std::string::npos) {
      result.text.resize(cut);
      result.ended = "stop";
      return false;
    }
    show(result.text.size() - held_back(result.text, options.stop));
    return true;
  };
  result.ids = generator.generate(prompt, options.generation, sequence,
                                  [&](int32_t id) { return take(decoder.push(id)); });
  if (result.ended != "stop") {
    take(decoder.finish());
    if (result.ended != "stop" &&
        static_cast<int64_t>(result.ids.size()) < options.generation.max_tokens)
      result.ended = "end";
  }
  show(result.text.size());
  return result;
}

std::vector<int32_t> prompt_ids(const LoadedModel& loaded, const std::string& text) {
  std::vector<int32_t> ids = loaded.encode(text);
  if (ids.empty() && !loaded.end_tokens.empty()) ids.push_back(loaded.end_tokens[0]);
  return ids;
}

}  // namespace

Run declare_generate(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  auto& sampling = options->generation.sampling;
  app.add_option("MODEL", options->model, "a run, a checkpoint, or a Hugging Face directory")
      ->required();
  auto* prompt = app.add_option("--prompt", options->prompt, "text to continue");
  app.add_option("--prompts", options->prompts,
                 "JSON lines of {\"prompt\": …}, continued one by one")
      ->excludes(prompt);
  app.add_option("--out", options->out,
                 "JSON lines of results, for --prompts; stdout if not given");
  app.add_option("--max-tokens", options->generation.max_tokens, "tokens to generate at most")
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
  app.add_option("--seed", sampling.seed, "seed of the sampling")->capture_default_str();
  app.add_option("--stop", options->stop, "end before this text; may be given several times");
  app.add_option("--threads", options->threads, "threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  return [options] {
    check(options->generation.sampling);
    TRIREME_CHECK(std::ranges::none_of(options->stop, &std::string::empty),
                  "generate: --stop must not be empty");
    prepare_process();
    std::vector<nlohmann::json> lines;
    if (!options->prompts.empty()) lines = read_json_lines(options->prompts);
    LoadedModel probe = load_model(options->model, 1, options->threads);
    TRIREME_CHECK(probe.tokenizer, "generate: ", probe.origin, " has no tokenizer.json");
    if (lines.empty()) lines.push_back({{"prompt", options->prompt}});

    std::vector<std::vector<int32_t>> prompts;
    size_t longest = 1;
    for (size_t i = 0; i < lines.size(); ++i) {
      TRIREME_CHECK(
          lines[i].is_object() && lines[i].contains("prompt") && lines[i]["prompt"].is_string(),
          options->prompts, ":", i + 1, ": expected an object with a text \"prompt\"");
      prompts.push_back(prompt_ids(probe, lines[i]["prompt"].get<std::string>()));
      longest = std::max(longest, prompts.back().size());
    }
    const auto capacity = static_cast<int64_t>(longest) + options->generation.max_tokens;
    const Model model = probe.family->build(at::kFloat, capacity);
    Generator generator(*probe.family, model, *probe.parameters, *probe.lanes, {},
                        kernel::Mode::fused, capacity);
    options->generation.end_tokens = probe.end_tokens;

    if (options->prompts.empty()) {
      std::fputs(options->prompt.c_str(), stdout);
      continue_text(generator, *probe.tokenizer, prompts[0], *options, 0, true);
      std::fputc('\n', stdout);
      return 0;
    }
    JsonLinesWriter writer(options->out);
    Progress progress("prompt");
    for (size_t i = 0; i < prompts.size(); ++i) {
      const Continuation c =
          continue_text(generator, *probe.tokenizer, prompts[i], *options, i, false);
      writer.add(
          {{"prompt", lines[i]["prompt"]}, {"text", c.text}, {"ids", c.ids}, {"finish", c.ended}});
      progress.show(i + 1, prompts.size());
    }
    writer.commit();
    return 0;
  };
}

}  // namespace trireme
