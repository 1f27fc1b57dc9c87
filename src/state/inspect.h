// Looking at checkpoints: statistics of a tensor, and what sets two checkpoints apart.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "state/checkpoint.h"

namespace trireme {

// Of the finite elements; NaN where there are none.
struct TensorStatistics {
  double mean, std;  // std divides by their number
  double min, max;
  double non_finite = 0.0;  // share of all elements, 0 to 1
};

// Cost: reads the tensor once. Memory: a few 16 MB slabs. Sums are in fp64.
TensorStatistics statistics_of(const Checkpoint& checkpoint, const TensorRecord& tensor);

struct TensorDifference {
  std::string name;
  std::string what;       // "only in A", "only in B", "shape", "dtype", "values"
  std::string a, b;       // the two shapes or dtypes
  int64_t differing = 0;  // elements whose values differ; NaN equals NaN, -0 differs from 0
  int64_t numel = 0;
  double max_abs = 0.0;   // infinite if a non-finite value differs
  double relative = 0.0;  // |A - B| / |B|, Euclidean
};

// Tensors that differ, by name; of `kind` only, if given. Tensors of one shape and of floating
// types that differ are compared by value (`what` is "values" if one does). Reads both once.
std::vector<TensorDifference> differences(const Checkpoint& a, const Checkpoint& b,
                                          std::string_view kind = {});

}  // namespace trireme
