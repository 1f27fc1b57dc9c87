// The same numbers in every layout: runs a recipe's first steps on one rank and on each layout, and
// compares.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/recipe/recipe.h"
#include "fabric/shared_region.h"

namespace trireme {

struct VerifyOptions {
  std::filesystem::path recipe;
  std::vector<std::string> overrides;
  std::string layouts = "all";  // or "replica=2", "replica=2,shard=2,recompute=block"; several
                                // behind one another by ';'
  int ranks = 2;                // of "all": every layout of so many ranks
  int64_t steps = 3;
  bool fp64 = true;  // else fp32, where only the first step's loss and gradients are compared
  // This process's memory with the other ranks; every layout then has `ranks` ranks, which all call
  // verify_layouts(), and rank 0 alone gets rows. null: ranks are threads of this process.
  SharedRegion* region = nullptr;
  std::chrono::milliseconds timeout = std::chrono::seconds(120);  // for a rank that others await
};

struct LayoutComparison {
  std::string layout;
  double loss = 0;  // of the last step
  double loss_error = 0, norm_error = 0, worst_gradient = 0, worst_weight = 0;
  double seconds = 0;
};

struct Difference {
  std::string layout, tensor, what;  // what: "gradient", "weight", "loss", "replicas"
  double error = 0, bound = 0;
};

struct Verification {
  double reference_loss = 0;
  std::vector<LayoutComparison> layouts;
  std::optional<Difference> first_difference;
};

// Errors and bounds. Over global tensors, with Euclidean norms and G the norm of the whole
// gradient:
//   gradient  |a - b| / max(|b|, 1e-4 G)                                      after the first step
//   weight    |a - b| / (|b| + lr steps sqrt(numel))                          after the last
//   loss, G   |a - b| / |b|                                                   of each step
// fp64: 1e-11, which layouts may reach by the order of sums alone. fp32: loss and G 1e-6, gradients
// 1e-5. Replicas of a weight must be equal to the bit. InputError if the recipe does not fit a
// layout that was named, or fits none.
Verification verify_layouts(const VerifyOptions& options);

}  // namespace trireme
