#include "train/train.h"

#include <CLI/CLI.hpp>
#include <csignal>
#include <memory>

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

}  // namespace

Run declare_train(CLI::App& app) {
  struct Options {
    RecipeArguments recipe;
    bool resume = false, dry_run = false;
    int64_t trace_steps = 0;
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
  return [options] {
    const auto start = std::chrono::steady_clock::now();
    Recipe recipe = options->recipe.load();
    const kernel::CountingAllocator* allocator = prepare_process();
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    const bool stopped =
        train(std::move(recipe), {.resume = options->resume,
                                  .dry_run = options->dry_run,
                                  .trace_steps = options->trace_steps,
                                  .allocator = allocator,
                                  .signal = [] { return static_cast<int>(received_signal); },
                                  .process_start = start});
    return stopped ? 128 + static_cast<int>(received_signal) : 0;
  };
}

}  // namespace trireme
