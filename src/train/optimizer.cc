#include "train/optimizer.h"

#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "base/error.h"
#include "base/recipe/recipe.h"
#include "kernel/adamw.h"

namespace trireme {
namespace {

class AdamW final : public DenseOptimizer {
 public:
  AdamW(const Recipe& recipe, const Parameters& parameters, kernel::Mode mode)
      : mode_(mode),
        weight_decay_(recipe.number("optimizer.weight_decay")),
        clip_(recipe.number("optimizer.clip")) {
    const std::vector<double> betas = recipe.numbers("optimizer.betas");
    step_.beta1 = betas[0];
    step_.beta2 = betas[1];
    step_.eps = recipe.number("optimizer.eps");
    for (const char* name : {"adamw.m", "adamw.v"}) {
      MomentSet& set = moments_.emplace_back(MomentSet{name, {}});
      for (const Unit& unit : parameters.units()) set.units.push_back(at::zeros_like(unit.shard));
    }
  }

  void begin_step(double learning_rate, int64_t update) override {
    step_.lr = learning_rate;
    step_.t = update;
  }

  // The norm is over every element of every parameter once; 1e-6 keeps the factor finite.
  std::optional<double> gradient_scale(double norm, bool finite) override {
    if (!finite) return std::nullopt;
    return clip_ > 0 ? std::min(1.0, clip_ / (norm + 1e-6)) : 1.0;
  }

  void update(const UpdateRange& range, double gradient_scale) override {
    kernel::AdamWStep step = step_;
    step.gradient_scale = gradient_scale;
    step.weight_decay = range.parameter.decay ? weight_decay_ : 0;
    const int64_t numel = range.end - range.begin;
    at::Tensor value = range.value;
    at::Tensor m = moments_[0].units[range.unit].narrow(0, range.begin, numel);
    at::Tensor v = moments_[1].units[range.unit].narrow(0, range.begin, numel);
    kernel::adamw_(value, range.gradient, m, v, step, mode_);
  }

  std::vector<MomentSet>& moments() override { return moments_; }

 private:
  kernel::Mode mode_;
  double weight_decay_, clip_;
  kernel::AdamWStep step_{};
  std::vector<MomentSet> moments_;
};

}  // namespace

std::unique_ptr<DenseOptimizer> make_optimizer(const Recipe& recipe, const Parameters& parameters,
                                               kernel::Mode mode) {
  TRIREME_ASSERT(recipe.text("optimizer.kind") == "adamw");
  return std::make_unique<AdamW>(recipe, parameters, mode);
}

}  // namespace trireme
