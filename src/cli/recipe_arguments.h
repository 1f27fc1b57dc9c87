// The arguments RECIPE [key=value …] that several verbs take.
#pragma once

#include <string>
#include <vector>

#include "base/recipe/recipe.h"

namespace CLI {
class App;
}

namespace trireme {

struct RecipeArguments {
  std::string path;
  std::vector<std::string> overrides;

  // This object must stay where it is until the command line is parsed.
  void declare(CLI::App& app);
  Recipe load() const { return load_recipe(path, overrides); }
};

}  // namespace trireme
