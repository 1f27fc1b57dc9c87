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

// {"ids", "log_probs"} for each {"text"} or {"ids"} line of the input.
void score_lines(const Options& options) {
  TRIREME_CHECK(options.data.size() == 1, "eval --per-token: --data takes one file of JSON lines");
  const std::vector<nlohmann::json> lines = read_json_lines(options.data[0]);
  LoadedModel loaded = load_model(options.model, 1, options.threads);
  std::vector<std::vector<int32_t>> texts;
  size_t longest = 1;
  for (size_t i = 0; i < lines.size(); ++i) {
    const nlohmann::json& line = lines[i];
    const std::string where = concat(options.data[0], ":", i + 1);
    TRIREME_CHECK(line.is_object() && (line.contains("text") || line.contains("ids")), where,
                  ": expected an object with \"text\" or \"ids\"");
    if (line.contains("ids")) {
      const auto is_id = [](const nlohmann::json& id) { return id.is_number_integer(); };
      TRIREME_CHECK(line["ids"].is_array() && std::ranges::all_of(line["ids"], is_id), where,
                    ": \"ids\" must be a list of integers");
      auto& ids = texts.emplace_back();
      for (const nlohmann::json& id : line["ids"]) {
        const auto value = id.get<int64_t>();
        TRIREME_CHECK(value >= 0 && value < loaded.family->vocab(), where, ": id ", value,
                      " is outside the vocabulary of ", loaded.family->vocab());
        ids.push_back(static_cast<int32_t>(value));
      }
    } else {
      TRIREME_CHECK(line["text"].is_string(), where, ": \"text\" must be a text");
      TRIREME_CHECK(loaded.tokenizer, where, ": ", loaded.origin,
                    " has no tokenizer.json; give \"ids\"");
      texts.push_back(loaded.encode(line["text"].get<std::string>()));
    }
    longest = std::max(longest, texts.back().size());
  }
  const Model model = loaded.family->build(at::kFloat, static_cast<int64_t>(longest));
  Scorer scorer(*loaded.family, model, *loaded.parameters, *loaded.lanes, {}, kernel::Mode::fused);
  JsonLinesWriter writer(options.out);
  Progress progress("line");
  for (size_t i = 0; i < texts.size(); ++i) {
    nlohmann::json log_probs = nlohmann::json::array();
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
