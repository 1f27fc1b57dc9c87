#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "cli/recipe_arguments.h"
#include "cli/verbs.h"
#include "data/inspect.h"
#include "data/text_recipe.h"
#include "train/load_model.h"

namespace trireme {
namespace {

using json = nlohmann::ordered_json;

struct BuildOptions {
  RecipeArguments recipe;
  bool json = false;
};

struct InspectOptions {
  RecipeArguments recipe;  // its path may be a corpus
  std::optional<uint64_t> sample;
  uint64_t count = 1;
  std::string split = "train";
  std::optional<int64_t> sequence;
  std::optional<uint64_t> seed;
  bool json = false;
};

// The recipe, once it is known to be one of a text task.
Recipe load_text_recipe(const RecipeArguments& arguments) {
  Recipe recipe = arguments.load();
  TRIREME_CHECK(recipe.has("data.sequence"), recipe.where("task"), ": task = \"",
                recipe.text("task"),
                "\" prepares no text corpus\nnext: take a recipe of a text task");
  return recipe;
}

int build(const BuildOptions& options) {
  const Recipe recipe = load_text_recipe(options.recipe);
  const BuildResult result = build_corpus(corpus_of(recipe), log_build_progress());
  if (options.json) {
    const json object = {{"directory", result.directory.string()}, {"built", result.built}};
    std::printf("%s\n", object.dump().c_str());
  } else {
    if (!result.built) log_info("nothing to do: the corpus is there");
    std::printf("%s\n", result.directory.c_str());
  }
  return 0;
}

// A sample function for a corpus without a recipe: the seed and the length are asked for, and a
// blend counts as one of equal shares.
TextSampleOptions options_without_recipe(const InspectOptions& options, const Corpus& corpus) {
  TextSampleOptions samples;
  samples.sequence = options.sequence.value_or(256);
  samples.seed = options.seed.value_or(1);
  samples.weights.assign(corpus.parts(), 1);
  return samples;
}

bool colors() {
  const char* no_color = std::getenv("NO_COLOR");
  return ::isatty(STDOUT_FILENO) == 1 && (no_color == nullptr || *no_color == '\0');
}

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void show(const InspectOptions& options, const Corpus& corpus, TextSampleOptions sample_options) {
  corpus.verify();
  if (!options.sample) return print(options.json ? corpus_json(corpus) : corpus_text(corpus));
  sample_options.split = options.split == "train" ? Split::train : Split::held_out;
  const TextSamples samples(corpus, std::move(sample_options));
  const Tokenizer tokenizer = Tokenizer::load(corpus.tokenizer_path());
  for (uint64_t i = 0; i < options.count; ++i) {
    const SampleView view = view_sample(corpus, samples, tokenizer, *options.sample + i);
    print(options.json ? sample_json(view, options.count == 1) : sample_text(view, colors()));
  }
}

int inspect(const InspectOptions& options) {
  const std::string& path = options.recipe.path;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    TRIREME_CHECK(options.recipe.overrides.empty(), "data inspect: ", path,
                  " is a corpus, so key=value has no effect\nnext: use --sequence and --seed");
    const Corpus corpus = Corpus::open(path);
    show(options, corpus, options_without_recipe(options, corpus));
    return 0;
  }
  TRIREME_CHECK(!options.sequence && !options.seed,
                "data inspect: --sequence and --seed are for a corpus; a recipe has its own"
                "\nnext: use data.sequence=… and run.seed=…");
  const Recipe recipe = load_text_recipe(options.recipe);
  const Corpus corpus = open_or_build(corpus_of(recipe), log_build_progress());
  show(options, corpus, sample_options(recipe, Split::train));
  return 0;
}

}  // namespace

Run declare_data(CLI::App& app) {
  const auto building = std::make_shared<BuildOptions>();
  CLI::App* build_app =
      app.add_subcommand("build", "prepare the corpus of a recipe, unless it is there");
  building->recipe.declare(*build_app);
  build_app->add_flag("--json", building->json, "one JSON document");

  const auto inspecting = std::make_shared<InspectOptions>();
  CLI::App* inspect_app = app.add_subcommand(
      "inspect",
      "show what a corpus holds, or any sample of it; RECIPE may be a corpus's directory");
  inspecting->recipe.declare(*inspect_app);
  CLI::Option* sample =
      inspect_app->add_option("--sample", inspecting->sample, "show the sample of this number");
  inspect_app
      ->add_option("--count", inspecting->count,
                   "how many samples from there on; with --json one object a line")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->capture_default_str()
      ->needs(sample);
  inspect_app->add_option("--split", inspecting->split, "train or held_out")
      ->check(CLI::IsMember({"train", "held_out"}))
      ->capture_default_str()
      ->needs(sample);
  inspect_app
      ->add_option("--sequence", inspecting->sequence,
                   "length of a sample of a corpus's directory; 256 if not given")
      ->needs(sample);
  inspect_app
      ->add_option("--seed", inspecting->seed,
                   "seed of the order of a corpus's directory; 1 if not given")
      ->needs(sample);
  inspect_app->add_flag("--json", inspecting->json, "one JSON document");
  app.require_subcommand(1);
  return [build_app, building, inspecting] {
    return build_app->parsed() ? build(*building) : inspect(*inspecting);
  };
}

}  // namespace trireme
