// Rows on their way out of a table or into one, in global coordinates: nothing here depends on
// parts, threads, ranks or the order of insertion. A checkpoint stores its tensors; a delta is the
// rows and tombstones of a range of versions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layout/dtype.h"
#include "layout/slice.h"

namespace trireme {

using RowVersion = uint32_t;  // number of a commit; the first is 1

// R rows, one element of each vector a row unless the shape says otherwise. Sorted by key when a
// table made it.
struct RowBatch {
  std::string optimizer;  // kind_of() the table's
  int64_t dim = 0;        // D
  int64_t moments = 0;    // M, for each weight

  std::vector<int64_t> key;
  std::vector<float> weight;  // [R, D]
  std::vector<float> moment;  // [R, M, D]
  std::vector<float> row_moment;
  std::vector<int64_t> count, updates, touched, version;

  std::vector<int64_t> erased_key, erased_version;  // tombstones

  int64_t rows() const { return static_cast<int64_t>(key.size()); }

  // Empties the batch and gives every vector its size, with zeros.
  void resize(int64_t rows, int64_t tombstones);
  // InputError, beginning with `who`, if a vector has not the size that keys and widths ask for, or
  // a version or count is out of range.
  void check(std::string_view who) const;
};

// One vector of a batch as a tensor, for whoever stores or reads it: "key", "weight", …
struct RowTensor {
  std::string_view name;
  DType dtype;
  Shape shape;
  std::span<std::byte> bytes;
};

// Views of all vectors, in a fixed order; they live as long as the batch keeps its sizes. To read a
// batch, set optimizer, dim and moments, resize(), and fill these.
std::vector<RowTensor> tensors_of(RowBatch& batch);

}  // namespace trireme
