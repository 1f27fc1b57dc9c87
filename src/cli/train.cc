#include "train/train.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>

#include "base/error.h"
#include "cli/launcher.h"
#include "cli/process.h"
#include "cli/recipe_arguments.h"
#include "cli/verbs.h"

namespace trireme {
namespace {

volatile std::sig_atomic_t received_signal = 0;

// The first signal asks for an end at the next whole step; a second one ends the process at once.
void on_signal(int signal) {
  received_signal = signal;
  std::signal(signal, SIG_DFL);
}

// The recipe, with its ranks on the axis replica if it names no axis. InputError if it makes
// another number of ranks.
Recipe load(const RecipeArguments& arguments, int64_t ranks) {
  const auto ranks_of = [](const Recipe& recipe) {
    return recipe.integer("layout.replica") * recipe.integer("layout.shard");
  };
  Recipe recipe = arguments.load();
  if (ranks == 0 || ranks_of(recipe) == ranks) return recipe;
  TRIREME_CHECK(ranks_of(recipe) == 1, recipe.where("layout.replica"),
                ": the layout has layout.replica × layout.shard = ", ranks_of(recipe),
                " ranks, --ranks says ", ranks);
  std::vector<std::string> overrides = arguments.overrides;
  overrides.push_back("layout.replica=" + std::to_string(ranks));
  return load_recipe(arguments.path, overrides);
}

}  // namespace

Run declare_train(CLI::App& app) {
  struct Options {
    RecipeArguments recipe;
    bool resume = false, dry_run = false;
    int64_t trace_steps = 0, ranks = 0;
    std::string fabric = "thread";
    double timeout = 120;
  };
  const auto options = std::make_shared<Options>();
  options->recipe.declare(app);
  app.add_flag("--resume", options->resume,
               "go on from the newest checkpoint of the run directory");
  app.add_flag("--dry-run", options->dry_run,
               "print the step program, its bytes and FLOPs, and stop");
  app.add_option("--trace", options->trace_steps,
                 "write trace/rank-N.json, for Perfetto, of this many steps after the first two")
      ->check(CLI::Range(1, 10000))
      ->type_name("STEPS");
  app.add_option("--ranks", options->ranks,
                 "local ranks; those of [layout], or replicas where it names none")
      ->check(CLI::Range(1, SharedRegion::kMaxRanks));
  app.add_option("--fabric", options->fabric, "ranks are threads of one process, or processes")
      ->capture_default_str()
      ->check(CLI::IsMember({"thread", "process"}));
  app.add_option("--timeout", options->timeout, "a rank that lets others wait this long has failed")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6))
      ->type_name("SECONDS");
  return [options] {
    const auto start = std::chrono::steady_clock::now();
    const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(options->timeout * 1000));
    refuse_foreign_launcher();
    Recipe recipe = load(options->recipe, options->ranks);
    const int64_t ranks = recipe.integer("layout.replica") * recipe.integer("layout.shard");
    const bool launches = options->fabric == "process" && ranks > 1 && !options->dry_run;
    if (launches && !is_launched_rank()) return launch_ranks(static_cast<int>(ranks), timeout);
    const kernel::CountingAllocator* allocator = prepare_process();
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    const auto run = [&](SharedRegion* region) {
      const bool stopped =
          train(std::move(recipe), {.resume = options->resume,
                                    .dry_run = options->dry_run,
                                    .trace_steps = options->trace_steps,
                                    .allocator = allocator,
                                    .signal = [] { return static_cast<int>(received_signal); },
                                    .region = region,
                                    .timeout = timeout,
                                    .process_start = start});
      return stopped ? 128 + static_cast<int>(received_signal) : 0;
    };
    if (!launches) return run(nullptr);
    return run_launched_rank([&](SharedRegion& region) { return run(&region); });
  };
}

}  // namespace trireme
