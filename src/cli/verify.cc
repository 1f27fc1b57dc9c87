#include "train/verify.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
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
  std::printf("%-36s %14s %10s %10s %10s %10s %8s\n", "layout", "loss", "loss err", "norm err",
              "gradient", "weight", "seconds");
  for (const LayoutComparison& row : verification.layouts)
    std::printf("%-36s %14.10f %10.1e %10.1e %10.1e %10.1e %8.2f\n", row.layout.c_str(), row.loss,
                row.loss_error, row.norm_error, row.worst_gradient, row.worst_weight, row.seconds);
}

}  // namespace

Run declare_verify(CLI::App& app) {
  struct Options {
    RecipeArguments recipe;
    VerifyOptions verify;
    std::string precision = "fp64";
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
  app.add_flag("--json", options->json, "one JSON document instead of a table");
  return [options] {
    prepare_process();
    VerifyOptions verify = options->verify;
    verify.recipe = options->recipe.path;
    verify.overrides = options->recipe.overrides;
    verify.fp64 = options->precision == "fp64";
    const Verification verification = verify_layouts(verify);
    if (options->json) std::printf("%s\n", to_json(verification).dump(2).c_str());
    else print_table(verification);
    if (const auto& d = verification.first_difference)
      throw CheckError(concat("layouts differ: ", d->what, " of ", d->tensor, " in ", d->layout,
                              ": error ", d->error, ", at most ", d->bound, " was expected"));
    log_info(concat(verification.layouts.size(), " layouts equal one rank"));
    return 0;
  };
}

}  // namespace trireme
