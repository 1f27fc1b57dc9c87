// Row-wise Adagrad, one accumulator a row: a += (1/D) sum_d g_d^2; w -= lr g / (sqrt(a) + epsilon).
#pragma once

#include <cmath>

#include "sparse/optimizers/row_state.h"

namespace trireme {

struct RowAdagradRows {
  static constexpr const char* kKind = "row_adagrad";
  static constexpr int kMoments = 0;  // a is the row's one moment
  float lr = 0.05f, epsilon = 1e-8f, initial_accumulator = 0;

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
  void begin(RowState row) const { row.row_moment = initial_accumulator; }
  void apply(RowState row, const float* g) const {
    row.row_moment += sum_of_squares(g, row.dim) / static_cast<float>(row.dim);
    const float rate = lr / (std::sqrt(row.row_moment) + epsilon);
    for (int64_t d = 0; d < row.dim; ++d) row.weights[d] -= rate * g[d];
  }
};

}  // namespace trireme
