// What an optimizer sees of one row, and what it must offer.
//
// An optimizer is a plain struct of settings with
//   kKind       its name in a recipe
//   kMoments    moments it keeps for each weight
//   lr          its learning rate, if it has one that decay apart from the gradient may use
//   fields(v)   calls v(name, setting) for each setting: parsing, checking and printing all come
//   from it check()     InputError if a setting is out of range begin(row)  moments of a new row,
//   given its first weights; they are 0 before apply(row, gradient)   one update
// and joins the list in optimizer.h. Formulas: D weights w, summed gradient g; all in fp32.
#pragma once

#include <cstdint>

#include "base/error.h"

namespace trireme {

struct RowState {
  float* weights;     // [D]
  float* moments;     // [kMoments, D]
  float& row_moment;  // one for the whole row
  uint32_t updates;   // of this row, the present one included (in begin(): 0)
  int64_t dim;

  float* moment(int number) const { return moments + number * dim; }
};

// sum of x[d]^2: eight sums side by side, then these in order. Part of the definition of equal
// bits.
inline float sum_of_squares(const float* x, int64_t dim) {
  float sums[8] = {};
  int64_t d = 0;
  for (; d + 8 <= dim; d += 8)
    for (int64_t j = 0; j < 8; ++j) sums[j] += x[d + j] * x[d + j];
  for (int64_t j = 0; d + j < dim; ++j) sums[j] += x[d + j] * x[d + j];
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

inline void check_setting(bool holds, const char* kind, const char* rule, float value) {
  TRIREME_CHECK(holds, "table optimizer ", kind, ": ", rule, ", got ", value);
}

}  // namespace trireme
