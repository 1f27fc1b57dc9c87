#include "train/evaluate.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "data/corpus_build.h"
#include "data/samples.h"
#include "engine/executor.h"
#include "plan/builder.h"
#include "plan/verifier.h"
#include "train/load_model.h"
#include "train/text_batch.h"

namespace trireme {
namespace {

// A folder that goes away with the object.
struct TemporaryFolder {
  fs::path path;
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "trireme-eval-XXXXXX").string();
    if (!::mkdtemp(name.data()))
      throw RunError(concat("cannot make a folder below ", fs::temp_directory_path().string()));
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
};

}  // namespace

TextScore evaluate_texts(const std::string& path, const std::vector<std::string>& sources,
                         int64_t sequence, int threads) {
  LoadedModel loaded = load_model(path, sequence, threads);
  TRIREME_CHECK(loaded.tokenizer, "eval: ", loaded.origin, " has no tokenizer.json");
  if (sequence == 0) sequence = loaded.family->max_positions();

  const TemporaryFolder folder;
  write_file(folder.path / "tokenizer.json", loaded.tokenizer->to_json());
  CorpusOptions options{.tokenizer = folder.path / "tokenizer.json",
                        .begin_of_text = loaded.boundaries.begin,
                        .end_of_text = loaded.boundaries.end,
                        .held_out = 0,
                        .cache = folder.path,
                        .threads = threads};
  for (const std::string& source : sources) options.sources.push_back({.path = source});
  const Corpus corpus = open_or_build(options, log_build_progress());
  TRIREME_CHECK(corpus.vocab() <= loaded.family->vocab(), "eval: the tokenizer has ",
                corpus.vocab(), " ids, the model ", loaded.family->vocab());
  const TextSamples samples(corpus, {.sequence = sequence, .split = Split::train});

  const int lanes = loaded.lanes->count();
  const Graph graph = graph_of(loaded.model, 4, 1);
  StepProgram program = build_forward(
      graph,
      {.micro_samples = std::vector<int64_t>(static_cast<size_t>(lanes), 1), .lanes = lanes});
  verify(program, graph);
  Executor executor(loaded.model, *loaded.parameters, *loaded.lanes, std::move(program), {});
  TextScore score;
  Progress progress("sample");
  const uint64_t total = samples.samples_per_epoch();
  for (uint64_t first = 0; first < total; first += static_cast<uint64_t>(lanes)) {
    StepInput input;
    for (int lane = 0; lane < lanes; ++lane)
      input.micro_batches.push_back(
          text_batch(samples, total, first + static_cast<uint64_t>(lane), 1));
    const StepResult result = executor.run(input);
    score.nats += result.losses.at("loss").sum;
    score.tokens += static_cast<int64_t>(result.losses.at("loss").weight);
    for (const Batch& batch : input.micro_batches)
      score.bytes += batch.at("label_bytes").item<int64_t>();
    progress.show(std::min(first + static_cast<uint64_t>(lanes), total), total);
  }
  TRIREME_CHECK(score.bytes > 0, "eval: the texts have no token that follows another");
  return score;
}

}  // namespace trireme
