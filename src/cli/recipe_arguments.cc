#include "cli/recipe_arguments.h"

#include <CLI/CLI.hpp>

namespace trireme {

void RecipeArguments::declare(CLI::App& app) {
  app.add_option("RECIPE", path, "a recipe, such as recipes/code-nano.toml")->required();
  app.add_option("key=value", overrides,
                 "values that go before the recipe's: batch.size=32; 'key=' takes a key out");
}

}  // namespace trireme
