#include "kernel/rope.h"

#include <ATen/ATen.h>

#include <cmath>

#include "kernel/tensor_checks.h"

namespace trireme::kernel {

std::vector<double> rope_frequencies(int64_t rotary_dim, double theta) {
  require(rotary_dim > 0 && rotary_dim % 2 == 0, "rope_frequencies: rotary_dim must be even, got ",
          rotary_dim);
  std::vector<double> frequencies;
  for (int64_t i = 0; i < rotary_dim / 2; ++i)
    frequencies.push_back(std::pow(theta, -2.0 * i / rotary_dim));
  return frequencies;
}

RopeTables rope_tables(const std::vector<double>& frequencies, int64_t max_positions,
                       at::ScalarType dtype, double factor) {
  const auto width = static_cast<int64_t>(frequencies.size());
  const at::Tensor cos = at::empty({max_positions, width}, at::kDouble);
  const at::Tensor sin = at::empty({max_positions, width}, at::kDouble);
  double* c = cos.mutable_data_ptr<double>();
  double* s = sin.mutable_data_ptr<double>();
  for (int64_t position = 0; position < max_positions; ++position)
    for (const double frequency : frequencies) {
      *c++ = factor * std::cos(position * frequency);
      *s++ = factor * std::sin(position * frequency);
    }
  return {cos.to(dtype), sin.to(dtype)};
}

}  // namespace trireme::kernel
