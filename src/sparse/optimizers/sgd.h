// Stochastic gradient descent: w -= lr g.
#pragma once

#include "sparse/optimizers/row_state.h"

namespace trireme {

struct SgdRows {
  static constexpr const char* kKind = "sgd";
  static constexpr int kMoments = 0;
  float lr = 0.01f;

  void fields(auto&& visit) { visit("lr", lr); }
  void check() const { check_setting(lr >= 0, kKind, "lr must not be negative", lr); }
  void begin(RowState) const {}
  void apply(RowState row, const float* g) const {
    for (int64_t d = 0; d < row.dim; ++d) row.weights[d] -= lr * g[d];
  }
};

}  // namespace trireme
