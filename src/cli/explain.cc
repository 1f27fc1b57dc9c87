#include "base/recipe/explain.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "cli/recipe_arguments.h"
#include "cli/verbs.h"
#include "train/load_model.h"

namespace trireme {

Run declare_explain(CLI::App& app) {
  struct Options {
    RecipeArguments recipe;
    bool json = false;
  };
  const auto options = std::make_shared<Options>();
  options->recipe.declare(app);
  app.add_flag("--json", options->json, "one JSON document instead of a table");
  return [options] {
    Recipe recipe = options->recipe.load();
    if (recipe.has("data.sequence")) {
      try {
        derive_boundaries(recipe);
      } catch (const InputError& error) {
        log_info(concat("data.bos and data.eos are not known yet: ", error.what()));
      }
    }
    const std::string text = options->json ? explain_json(recipe) : explain_table(recipe);
    std::fputs(text.c_str(), stdout);
    return 0;
  };
}

}  // namespace trireme
