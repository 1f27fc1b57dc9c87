#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <numbers>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "cli/json_lines.h"
#include "cli/process.h"
#include "cli/verbs.h"
#include "infer/generator.h"
#include "train/evaluate.h"
#include "train/load_model.h"

namespace trireme {
namespace {

struct Options {
  std::string model, out;
  std::vector<std::string> data;
  int64_t sequence = 0;
  int threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  bool per_token = false, json = false;
};

// The ids of one line.
std::vector<int32_t> read_text(const nlohmann::json& line, const LoadedModel& loaded,
                               const std::string& where) {
  TRIREME_CHECK(line.is_object() && (line.contains("text") || line.contains("ids")), where,
                ": expected an object with \"text\" or \"ids\"");
  std::vector<int32_t> ids;
  if (line.contains("ids")) {
    ids = read_ids(line["ids"], loaded.family->vocab(), where);
  } else {
    TRIREME_CHECK(line["text"].is_string(), where, ": \"text\" must be a text, found ",
                  line["text"].type_name());
    TRIREME_CHECK(loaded.tokenizer, where, ": ", loaded.origin,
                  " has no tokenizer.json; give \"ids\"");
    ids = loaded.encode(line["text"].get_ref<const std::string&>());
  }
  const auto tokens = static_cast<int64_t>(ids.size());
  TRIREME_CHECK(tokens <= loaded.family->max_positions(), where, ": the text has ", tokens,
                " tokens, and ", loaded.origin, " reads at most ", loaded.family->max_positions());
  return ids;
}

// {"ids", "log_probs"} for each {"text"} or {"ids"} line of the input.
void score_lines(const Options& options) {
  TRIREME_CHECK(options.data.size() == 1, "eval --per-token: --data takes one file of JSON lines");
  const std::vector<JsonLine> lines = read_json_lines(options.data[0]);
  JsonLinesWriter writer(options.out);
  const LoadedModel loaded = load_model(options.model, 1, 1);
  std::vector<std::vector<int32_t>> texts;
  size_t longest = 1;
  for (const auto& [where, line] : lines) {
    texts.push_back(read_text(line, loaded, where));
    longest = std::max(longest, texts.back().size());
  }
  const Model model = loaded.family->build(at::kFloat, static_cast<int64_t>(longest));
  const auto lanes = generation_lanes(options.threads);
  Scorer scorer(*loaded.family, model, *loaded.parameters, *lanes, {}, kernel::Mode::fused);
  Progress progress("line");
  for (size_t i = 0; i < texts.size(); ++i) {
    nlohmann::ordered_json log_probs = nlohmann::ordered_json::array();
    if (!texts[i].empty()) log_probs.push_back(nullptr);
    for (double log_prob : scorer.log_probs(texts[i])) log_probs.push_back(log_prob);
    writer.add({{"ids", texts[i]}, {"log_probs", log_probs}});
    progress.show(i + 1, texts.size());
  }
  writer.commit();
}

}  // namespace

Run declare_eval(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  app.add_option("MODEL", options->model, "a run, a checkpoint, or a Hugging Face directory")
      ->required();
  app.add_option("--data", options->data,
                 "texts: paths, folders, globs or a named source; each is read once")
      ->required();
  app.add_option("--sequence", options->sequence,
                 "length of the windows that texts are cut into; default: the model's longest")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 24));
  app.add_flag("--per-token", options->per_token,
               "write each token's log-probability, for JSON lines of \"text\" or \"ids\"");
  app.add_option("--out", options->out, "file for --per-token; stdout if not given");
  app.add_option("--threads", options->threads, "threads")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_flag("--json", options->json, "one JSON document instead of a table");
  return [options] {
    prepare_process();
    if (options->per_token) {
      score_lines(*options);
      return 0;
    }
    TRIREME_CHECK(options->out.empty(), "eval: --out belongs to --per-token");
    const TextScore score =
        evaluate_texts(options->model, options->data, options->sequence, options->threads);
    if (options->json)
      std::printf("%s\n", nlohmann::json{{"loss", score.loss()},
                                         {"bits_per_byte", score.bits_per_byte()},
                                         {"perplexity", std::exp(score.loss())},
                                         {"tokens", score.tokens},
                                         {"bytes", score.bytes}}
                              .dump(2)
                              .c_str());
    else
      std::printf(
          "loss           %.6f nats per token\nbits per byte  %.6f\nperplexity     %.4f\ntokens    "
          "     %s\n"
          "bytes          %s\n",
          score.loss(), score.bits_per_byte(), std::exp(score.loss()),
          format_count(static_cast<uint64_t>(score.tokens)).c_str(),
          format_count(static_cast<uint64_t>(score.bytes)).c_str());
    return 0;
  };
}

}  // namespace trireme
