// Adagrad, element by element: a += g^2; w -= lr g / (sqrt(a) + epsilon).
// Duchi et al., "Adaptive subgradient methods", JMLR 2011. The variant of TensorFlow's lineage
// starts a at 0.1: initial_accumulator; only then may epsilon be 0.
#pragma once

#include <cmath>

#include "sparse/optimizers/row_state.h"

namespace trireme {

struct AdagradRows {
  static constexpr const char* kKind = "adagrad";
  static constexpr int kMoments = 1;  // a
  float lr = 0.05f, epsilon = 1e-10f, initial_accumulator = 0;

  void fields(auto&& visit) {
    visit("lr", lr);
    visit("epsilon", epsilon);
    visit("initial_accumulator", initial_accumulator);
  }
  void check() const {
    check_setting(lr >= 0, kKind, "lr must not be negative", lr);
    check_setting(initial_accumulator >= 0, kKind, "initial_accumulator must not be negative",
                  initial_accumulator);
    check_setting(epsilon > 0 || (epsilon == 0 && initial_accumulator > 0), kKind,
                  "epsilon must be positive (0 is possible with an initial_accumulator above 0)",
                  epsilon);
  }
  void begin(RowState row) const {
    for (int64_t d = 0; d < row.dim; ++d) row.moment(0)[d] = initial_accumulator;
  }
  void apply(RowState row, const float* g) const {
    float* a = row.moment(0);
    for (int64_t d = 0; d < row.dim; ++d) {
      a[d] += g[d] * g[d];
      row.weights[d] -= lr * g[d] / (std::sqrt(a[d]) + epsilon);
    }
  }
};

}  // namespace trireme
