#include "train/verify.h"

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "cli/launcher.h"
#include "cli/process.h"
#include "cli/recipe_arguments.h"
#include "cli/verbs.h"

namespace trireme {
namespace {

nlohmann::json to_json(const Verification& verification) {
  nlohmann::json rows = nlohmann::json::array();
  for (const LayoutComparison& row : verification.layouts)
    rows.push_back({{"layout", row.layout},
                    {"schedule", "gradient accumulation"},
                    {"loss", row.loss},
                    {"loss_error", row.loss_error},
                    {"norm_error", row.norm_error},
                    {"worst_gradient", row.worst_gradient},
                    {"worst_weight", row.worst_weight},
                    {"seconds", row.seconds}});
  nlohmann::json first = nullptr;
  if (const auto& d = verification.first_difference)
    first = {{"layout", d->layout},
             {"tensor", d->tensor},
             {"what", d->what},
             {"error", d->error},
             {"bound", d->bound}};
  return {{"equal", !verification.first_difference},
          {"reference_loss", verification.reference_loss},
          {"layouts", rows},
          {"first_difference", first}};
}

void print_table(const Verification& verification) {
  std::printf("%-44s %14s %10s %10s %10s %10s %8s\n", "layout", "loss", "loss err", "norm err",
              "gradient", "weight", "seconds");
  for (const LayoutComparison& row : verification.layouts)
    std::printf("%-44s %14.10f %10.1e %10.1e %10.1e %10.1e %8.2f\n", row.layout.c_str(), row.loss,
                row.loss_error, row.norm_error, row.worst_gradient, row.worst_weight, row.seconds);
}

// CheckError if a layout differs.
void tell(const Verification& verification, bool json) {
  if (json) std::printf("%s\n", to_json(verification).dump(2).c_str());
  else print_table(verification);
  std::fflush(stdout);
  if (const auto& d = verification.first_difference)
    throw CheckError(concat("layouts differ: ", d->what, " of ", d->tensor, " in ", d->layout,
                            ": error ", d->error, ", at most ", d->bound, " was expected"));
  log_info(concat(verification.layouts.size(), " layouts equal one rank"));
}

}  // namespace

Run declare_verify(CLI::App& app) {
  struct Options {
    RecipeArguments recipe;
    VerifyOptions verify;
    std::string precision = "fp64", fabric = "thread";
    double timeout = 120;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  options->recipe.declare(app);
  app.add_option("--layouts", options->verify.layouts,
                 "all, or layouts such as \"replica=2;shard=2,recompute=block\"")
      ->capture_default_str();
  app.add_option("--ranks", options->verify.ranks, "ranks of the layouts that `all` means")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--steps", options->verify.steps, "steps to run")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000));
  app.add_option("--precision", options->precision,
                 "fp64, or fp32 where only the first step is compared")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp64", "fp32"}));
  app.add_option("--fabric", options->fabric, "ranks are threads of one process, or processes")
      ->capture_default_str()
      ->check(CLI::IsMember({"thread", "process"}));
  app.add_option("--timeout", options->timeout, "a rank that lets others wait this long has failed")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 1e6))
      ->type_name("SECONDS");
  app.add_flag("--json", options->json, "one JSON document instead of a table");
  return [options] {
    const auto timeout = std::chrono::milliseconds(static_cast<int64_t>(options->timeout * 1000));
    const bool launches = options->fabric == "process" && options->verify.ranks > 1;
    refuse_foreign_launcher();
    if (launches && !is_launched_rank()) return launch_ranks(options->verify.ranks, timeout);
    prepare_process();
    VerifyOptions verify = options->verify;
    verify.recipe = options->recipe.path;
    verify.overrides = options->recipe.overrides;
    verify.fp64 = options->precision == "fp64";
    verify.timeout = timeout;
    const auto run = [&](SharedRegion* region) {
      verify.region = region;
      const Verification verification = verify_layouts(verify);
      if (region && region->rank() > 0) return 0;
      tell(verification, options->json);
      return 0;
    };
    if (!launches) return run(nullptr);
    return run_launched_rank([&](SharedRegion& region) { return run(&region); });
  };
}

}  // namespace trireme
