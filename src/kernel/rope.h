// Tables of rotary position embeddings.
//
// The layout is Hugging Face's halves: with x = (x1, x2), each R / 2 wide, the rotation is
// (x1 cos - x2 sin, x2 cos + x1 sin); features from R on pass through. Angle = position *
// frequency, computed in double and rounded once.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace trireme::kernel {

struct RopeTables {
  at::Tensor cos, sin;  // [max_positions, R / 2]
};

// theta^(-2i / R) for i = 0 … R/2 - 1. R = rotary_dim is even and positive.
std::vector<double> rope_frequencies(int64_t rotary_dim, double theta);

// `dtype` is float or double. `factor` multiplies both tables (YaRN's attention factor). A scaled
// RoPE is another list of frequencies.
RopeTables rope_tables(const std::vector<double>& frequencies, int64_t max_positions,
                       at::ScalarType dtype, double factor = 1);

}  // namespace trireme::kernel
