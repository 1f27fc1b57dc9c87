// Which part of a global tensor somebody holds, in global coordinates.
//
// A Box is one rectangle of a tensor: [begin, end) in each dim. A Slice is what one rank holds of a
// tensor: for each dim a list of ranges, rising and disjoint; its elements are the product of these
// lists, stored row-major in that order. One rank's slice of a fused weight (q|k|v) has several
// ranges in dim 0; every other slice has one a dim. Loading on another layout, exporting and
// resharding are intersections of slices. Any thread; values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

using Shape = std::vector<int64_t>;

// Product of the extents, 1 for a scalar. InputError if an extent is negative or the product
// exceeds int64.
int64_t numel_of(const Shape& shape);
std::string to_string(const Shape& shape);  // "[4096, 256]"

struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

struct Slice {
  std::vector<std::vector<Range>> dims;

  static Slice whole(const Shape& shape);
  static Slice box(std::vector<Range> ranges);  // one range a dim

  Shape extents() const;  // local shape: the sum of the ranges' sizes in each dim
  int64_t numel() const;
  bool empty() const { return numel() == 0; }
  bool operator==(const Slice&) const = default;
};

std::string to_string(const Slice& slice);  // "[0:128+256:384, 0:64]"

// One stretch of elements that lies contiguously in both of two row-major local tensors.
struct CopyRun {
  int64_t from, to;  // element offsets within the two local tensors
  int64_t numel;
};

// How to fill what `to` holds from what `from` holds: the runs of their intersection, in rising
// order of `to`. Adjacent runs are merged. Cost: one run for each contiguous stretch.
std::vector<CopyRun> copy_runs(const Slice& from, const Slice& to);

}  // namespace trireme
