// Adam for rows, in the form `lazy_row`: a row that is not touched does not move, and T counts the
// row's own updates, so that a row born late takes a first step of exactly lr.
//   m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
//   w -= lr mhat / (sqrt(vhat) + epsilon),  mhat = m / (1 - beta1^T),  vhat = v / (1 - beta2^T)
// Kingma and Ba, "Adam: a method for stochastic optimization", ICLR 2015.
#pragma once

#include <cmath>

#include "sparse/optimizers/row_state.h"

namespace trireme {

struct AdamRows {
  static constexpr const char* kKind = "adam";
  static constexpr int kMoments = 2;  // m, v
  float lr = 0.001f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;

  void fields(auto&& visit) {
    visit("lr", lr);
    visit("beta1", beta1);
    visit("beta2", beta2);
    visit("epsilon", epsilon);
  }
  void check() const {
    check_setting(lr >= 0, kKind, "lr must not be negative", lr);
    check_setting(beta1 >= 0 && beta1 < 1, kKind, "beta1 must be in [0, 1)", beta1);
    check_setting(beta2 >= 0 && beta2 < 1, kKind, "beta2 must be in [0, 1)", beta2);
    check_setting(epsilon > 0, kKind, "epsilon must be positive", epsilon);
  }
  void begin(RowState) const {}
  void apply(RowState row, const float* g) const {
    // The powers in double: 1 - 0.999f^T loses half its digits in fp32 while T is small.
    const auto corrected = [&](double beta) {
      return 1 - std::pow(beta, static_cast<double>(row.updates));
    };
    const auto rate = static_cast<float>(static_cast<double>(lr) / corrected(beta1));
    const auto v_scale = static_cast<float>(1 / corrected(beta2));
    float *m = row.moment(0), *v = row.moment(1);
    for (int64_t d = 0; d < row.dim; ++d) {
      m[d] = beta1 * m[d] + (1 - beta1) * g[d];
      v[d] = beta2 * v[d] + (1 - beta2) * (g[d] * g[d]);
      row.weights[d] -= rate * m[d] / (std::sqrt(v[d] * v_scale) + epsilon);
    }
  }
};

}  // namespace trireme
