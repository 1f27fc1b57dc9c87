// The learning rate of a step, after reference formulas: linear rise, then a course to its end.
//
// With W warm-up steps of N, peak P, start s = P * start_ratio and floor p = P * min_ratio, step t
// from 1:
//   t <= W              s + (P - s) t / W
//   r = (t - W) / (N - W), the share of the rest that is done
//   constant            P
//   linear              p + (P - p) (1 - r)
//   cosine              p + (P - p) (1 + cos(pi r)) / 2
//   wsd                 P, then over the last D steps p + (P - p) (1 - sqrt(q)), q the share of D
//   that is done
// A model that goes on is warmed up again: s is where its last run left the rate. Ibrahim et al.
// 2024, arXiv 2403.08763.
// Source: Loshchilov and Hutter 2017 (cosine); Hägele et al. 2024, arXiv 2405.18392 (warm-up,
// stable, 1 - sqrt decay).
#pragma once

#include <cstdint>

namespace trireme {

class Recipe;

struct Schedule {
  enum class Kind { constant, linear, cosine, wsd } kind = Kind::constant;
  double peak = 0, min_ratio = 0, start_ratio = 0;
  int64_t steps = 0, warmup_steps = 0, decay_steps = 0;

  double learning_rate(int64_t step) const;  // REQUIRES: step >= 1; beyond `steps` as at `steps`
};

Schedule schedule_from(const Recipe& recipe);

}  // namespace trireme
