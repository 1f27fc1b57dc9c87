#include "base/recipe/explain.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/recipe_arguments.h"
#include "cli/verbs.h"

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
    const Recipe recipe = options->recipe.load();
    const std::string text = options->json ? explain_json(recipe) : explain_table(recipe);
    std::fputs(text.c_str(), stdout);
    return 0;
  };
}

}  // namespace trireme
