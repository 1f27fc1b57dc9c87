#include "kernel/rope.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

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
  require(dtype == at::kFloat || dtype == at::kDouble,
          "rope_tables: dtype must be float or double, got ", dtype);
  const at::Tensor cos = at::empty({max_positions, width}, dtype), sin = at::empty_like(cos);
  dispatch_float_double(cos, [&]<class T>(T) {
    T *c = cos.mutable_data_ptr<T>(), *s = sin.mutable_data_ptr<T>();
    for (int64_t position = 0; position < max_positions; ++position)
      for (const double frequency : frequencies) {
        *c++ = static_cast<T>(factor * std::cos(position * frequency));
        *s++ = static_cast<T>(factor * std::sin(position * frequency));
      }
  });
  return {cos, sin};
}

}  // namespace trireme::kernel
