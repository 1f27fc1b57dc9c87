// FTRL-proximal: online learning with sparse weights.
//   n' = n + g^2;  sigma = (sqrt(n') - sqrt(n)) / alpha;  z' = z + g - sigma w
//   w' = 0 if |z'| <= l1, else -(z' - sign(z') l1) / ((beta + sqrt(n')) / alpha + l2)
// McMahan et al., "Ad click prediction: a view from the trenches", KDD 2013. Some frameworks divide
// by 2 l2 in place of l2 and start n at 0.1: give twice the l2, and initial_accumulator.
//
// w is a function of (z, n): what changes w alone, such as decay apart from the gradient, is lost.
#pragma once

#include <cmath>

#include "sparse/optimizers/row_state.h"

namespace trireme {

struct FtrlRows {
  static constexpr const char* kKind = "ftrl";
  static constexpr int kMoments = 2;  // z, n
  float alpha = 0.1f, beta = 1, l1 = 0, l2 = 0, initial_accumulator = 0;

  void fields(auto&& visit) {
    visit("alpha", alpha);
    visit("beta", beta);
    visit("l1", l1);
    visit("l2", l2);
    visit("initial_accumulator", initial_accumulator);
  }
  void check() const {
    check_setting(alpha > 0, kKind, "alpha must be positive", alpha);
    check_setting(beta >= 0, kKind, "beta must not be negative", beta);
    check_setting(l1 >= 0, kKind, "l1 must not be negative", l1);
    check_setting(l2 >= 0, kKind, "l2 must not be negative", l2);
    check_setting(initial_accumulator >= 0, kKind, "initial_accumulator must not be negative",
                  initial_accumulator);
    check_setting(beta > 0 || l2 > 0 || initial_accumulator > 0, kKind,
                  "beta, l2 and initial_accumulator must not all be 0", beta);
  }
  // z such that the first weights are what (z, n) say.
  void begin(RowState row) const {
    float *z = row.moment(0), *n = row.moment(1);
    for (int64_t d = 0; d < row.dim; ++d) {
      const float w = row.weights[d];
      n[d] = initial_accumulator;
      z[d] = w == 0 ? 0 : -w * divisor(n[d]) - std::copysign(l1, w);
    }
  }
  void apply(RowState row, const float* g) const {
    float *z = row.moment(0), *n = row.moment(1);
    for (int64_t d = 0; d < row.dim; ++d) {
      const float after = n[d] + g[d] * g[d];
      const float sigma = (std::sqrt(after) - std::sqrt(n[d])) / alpha;
      z[d] += g[d] - sigma * row.weights[d];
      n[d] = after;
      row.weights[d] = weight(z[d], after);
    }
  }
  float weight(float z, float n) const {
    if (std::abs(z) <= l1) return 0;
    return -(z - std::copysign(l1, z)) / divisor(n);
  }
  float divisor(float n) const { return (beta + std::sqrt(n)) / alpha + l2; }
};

}  // namespace trireme
