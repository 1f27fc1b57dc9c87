// The optimizers of row tables, as one value, and their settings by name.
//
// A new optimizer is one file in optimizers/ (row_state.h says what it must offer) and one name in
// the list below.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "sparse/optimizers/adagrad.h"
#include "sparse/optimizers/adam.h"
#include "sparse/optimizers/ftrl.h"
#include "sparse/optimizers/row_adagrad.h"
#include "sparse/optimizers/sgd.h"

namespace trireme {

using RowOptimizer = std::variant<SgdRows, AdagradRows, RowAdagradRows, AdamRows, FtrlRows>;

using OptimizerSettings = std::vector<std::pair<std::string, double>>;

// The optimizer of this kind with these settings, the others at their defaults. InputError for an
// unknown kind or setting, naming those that exist, and for a value out of range.
RowOptimizer make_row_optimizer(std::string_view kind, const OptimizerSettings& settings);

std::string_view kind_of(const RowOptimizer& optimizer);       // "row_adagrad"
OptimizerSettings settings_of(const RowOptimizer& optimizer);  // every setting, in order
int moments_of(const RowOptimizer& optimizer);                 // for each weight

}  // namespace trireme
