#include "layout/slice.h"

#include <algorithm>
#include <span>

#include "base/error.h"

namespace trireme {
namespace {

// A stretch of one dim that both slices hold, as offsets along that dim of the two local tensors.
struct Piece {
  int64_t from, to, size;
};

std::vector<Piece> intersect(const std::vector<Range>& from, const std::vector<Range>& to) {
  std::vector<Piece> pieces;
  int64_t from_base = 0, to_base = 0;  // local offset at which the current range begins
  for (size_t f = 0, t = 0; f < from.size() && t < to.size();) {
    const int64_t begin = std::max(from[f].begin, to[t].begin);
    const int64_t end = std::min(from[f].end, to[t].end);
    if (begin < end) {
      const Piece piece{from_base + begin - from[f].begin, to_base + begin - to[t].begin,
                        end - begin};
      Piece* last = pieces.empty() ? nullptr : &pieces.back();
      if (last && last->from + last->size == piece.from && last->to + last->size == piece.to)
        last->size += piece.size;
      else pieces.push_back(piece);
    }
    if (from[f].end <= to[t].end) from_base += from[f++].size();
    else to_base += to[t++].size();
  }
  return pieces;
}

// The dims of a copy, outermost first, with the strides of both local tensors.
struct CopyDim {
  std::vector<Piece> pieces;
  int64_t from_stride, to_stride;
};

void append(std::vector<CopyRun>& runs, CopyRun run) {
  if (!runs.empty()) {
    CopyRun& last = runs.back();
    if (last.from + last.numel == run.from && last.to + last.numel == run.to) {
      last.numel += run.numel;
      return;
    }
  }
  runs.push_back(run);
}

// Walks `dims` in order; the last one is contiguous in both, `run` elements an index.
void walk(std::span<const CopyDim> dims, int64_t from, int64_t to, std::vector<CopyRun>& runs) {
  const CopyDim& dim = dims.front();
  for (const Piece& piece : dim.pieces) {
    if (dims.size() == 1) {
      append(runs, {from + piece.from * dim.from_stride, to + piece.to * dim.to_stride,
                    piece.size * dim.to_stride});
      continue;
    }
    for (int64_t i = 0; i < piece.size; ++i)
      walk(dims.subspan(1), from + (piece.from + i) * dim.from_stride,
           to + (piece.to + i) * dim.to_stride, runs);
  }
}

int64_t total(const std::vector<Range>& ranges) {
  int64_t sum = 0;
  for (const Range& range : ranges) sum += range.size();
  return sum;
}

}  // namespace

int64_t numel_of(const Shape& shape) {
  int64_t numel = 1;
  bool zero = false;
  for (int64_t extent : shape) {
    TRIREME_CHECK(extent >= 0, "shape ", to_string(shape), " has a negative extent");
    zero = zero || extent == 0;
  }
  if (zero) return 0;
  for (int64_t extent : shape)
    TRIREME_CHECK(!__builtin_mul_overflow(numel, extent, &numel), "shape ", to_string(shape),
                  " has more elements than 63 bits can count");
  return numel;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t dim = 0; dim < shape.size(); ++dim)
    text += (dim ? ", " : "") + std::to_string(shape[dim]);
  return text + "]";
}

std::string to_string(const Slice& slice) {
  std::string text = "[";
  for (size_t dim = 0; dim < slice.dims.size(); ++dim) {
    if (dim) text += ", ";
    const auto& ranges = slice.dims[dim];
    if (ranges.empty()) text += "none";
    for (size_t i = 0; i < ranges.size(); ++i)
      text += concat(i ? "+" : "", ranges[i].begin, ":", ranges[i].end);
  }
  return text + "]";
}

Slice Slice::whole(const Shape& shape) {
  Slice slice;
  for (int64_t extent : shape) slice.dims.push_back({Range{0, extent}});
  return slice;
}

Slice Slice::box(std::vector<Range> ranges) {
  Slice slice;
  for (const Range& range : ranges) slice.dims.push_back({range});
  return slice;
}

Shape Slice::extents() const {
  Shape shape;
  for (const auto& ranges : dims) shape.push_back(total(ranges));
  return shape;
}

int64_t Slice::numel() const { return numel_of(extents()); }

std::vector<CopyRun> copy_runs(const Slice& from, const Slice& to) {
  TRIREME_CHECK(from.dims.size() == to.dims.size(),
                "slices of one tensor differ in dims: ", to_string(from), " and ", to_string(to));
  if (from.empty() || to.empty()) return {};
  if (to.dims.empty()) return {{0, 0, 1}};  // a scalar
  const Shape from_extents = from.extents(), to_extents = to.extents();
  std::vector<CopyDim> dims(to.dims.size());
  int64_t from_stride = 1, to_stride = 1;
  for (size_t dim = dims.size(); dim-- > 0;) {
    dims[dim] = {intersect(from.dims[dim], to.dims[dim]), from_stride, to_stride};
    if (dims[dim].pieces.empty()) return {};
    from_stride *= from_extents[dim];
    to_stride *= to_extents[dim];
  }
  // Trailing dims that both sides hold in full are part of the contiguous stretch.
  size_t last = dims.size() - 1;
  while (last > 0 && dims[last].pieces.size() == 1 &&
         dims[last].pieces[0].size == from_extents[last] && from_extents[last] == to_extents[last])
    --last;
  std::vector<CopyRun> runs;
  walk(std::span(dims).first(last + 1), 0, 0, runs);
  return runs;
}

}  // namespace trireme
