#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "base/recipe/recipe.h"

namespace trireme {

double Schedule::learning_rate(int64_t step) const {
  TRIREME_ASSERT(step >= 1, "step ", step);
  if (step <= warmup_steps) {
    const double start = peak * start_ratio;
    return start + (peak - start) * static_cast<double>(step) / static_cast<double>(warmup_steps);
  }
  const double floor = peak * min_ratio;
  const double rest = static_cast<double>(std::max<int64_t>(steps - warmup_steps, 1));
  const double r = std::min(static_cast<double>(step - warmup_steps) / rest, 1.0);
  switch (kind) {
    case Kind::constant:
      return peak;
    case Kind::linear:
      return floor + (peak - floor) * (1 - r);
    case Kind::cosine:
      return floor + (peak - floor) * (1 + std::cos(std::numbers::pi * r)) / 2;
    case Kind::wsd: {
      const int64_t into = step - (steps - decay_steps);
      if (into <= 0) return peak;
      const double q = std::min(static_cast<double>(into) / static_cast<double>(decay_steps), 1.0);
      return floor + (peak - floor) * (1 - std::sqrt(q));
    }
  }
  return peak;
}

Schedule schedule_from(const Recipe& recipe) {
  Schedule schedule;
  const std::string& kind = recipe.text("schedule.kind");
  using Kind = Schedule::Kind;
  schedule.kind = kind == "linear"   ? Kind::linear
                  : kind == "cosine" ? Kind::cosine
                  : kind == "wsd"    ? Kind::wsd
                                     : Kind::constant;
  schedule.peak = recipe.number("optimizer.lr");
  schedule.steps = recipe.integer("run.steps");
  schedule.warmup_steps = recipe.integer("schedule.warmup_steps");
  if (recipe.has("schedule.start_ratio"))
    schedule.start_ratio = recipe.number("schedule.start_ratio");
  if (recipe.has("schedule.min_ratio")) schedule.min_ratio = recipe.number("schedule.min_ratio");
  if (recipe.has("schedule.decay_steps"))
    schedule.decay_steps = recipe.integer("schedule.decay_steps");
  return schedule;
}

}  // namespace trireme
