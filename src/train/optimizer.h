// Dense optimizers: how what a rank owns of the weights steps, and the moments that this needs.
//
// Moments are laid out as the shards of engine/parameters.h and stored under
// "<moment>/<parameter>". They begin at 0.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/executor.h"

namespace trireme {

class Recipe;

struct MomentSet {
  std::string name;               // "adamw.m"
  std::vector<at::Tensor> units;  // by unit, flat, as the unit's shard
};

class DenseOptimizer : public UpdateRule {
 public:
  // Before each step: the scheduled learning rate, and the count of this update from 1. A step that
  // is left out does not count.
  virtual void begin_step(double learning_rate, int64_t update) = 0;
  virtual std::vector<MomentSet>& moments() = 0;
};

// By `optimizer.kind`. The parameters outlive it.
std::unique_ptr<DenseOptimizer> make_optimizer(const Recipe& recipe, const Parameters& parameters,
                                               kernel::Mode mode);

}  // namespace trireme
