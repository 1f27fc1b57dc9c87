// Runs a recipe: from the recipe's text to a finished run directory.
#pragma once

#include <chrono>
#include <functional>

#include "base/recipe/recipe.h"
#include "fabric/shared_region.h"
#include "kernel/allocator.h"

namespace trireme {

struct TrainOptions {
  bool resume = false;
  bool dry_run = false;     // print the step program, bytes and FLOPs to stdout, and stop
  int64_t trace_steps = 0;  // write a trace of so many steps, after two that warm up
  const kernel::CountingAllocator* allocator = nullptr;
  std::function<int()> signal;  // 0, or the signal that asks for an end
  // This process is one rank of many, of which this is the shared memory; null: all ranks are
  // threads here. Rank 0 opens the run directory and speaks.
  SharedRegion* region = nullptr;
  std::chrono::milliseconds timeout = std::chrono::seconds(120);  // of an operation between ranks
  std::chrono::steady_clock::time_point process_start = std::chrono::steady_clock::now();
};

// Returns true if the run ended because a signal asked for it. Throws Error.
bool train(Recipe recipe, const TrainOptions& options);

}  // namespace trireme
