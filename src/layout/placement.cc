#include "layout/placement.h"

#include <algorithm>

#include "base/error.h"

namespace trireme {
namespace {

constexpr std::array kCuttingAxes = {Axis::replica, Axis::shard, Axis::context, Axis::tensor};

void append_merged(std::vector<Range>& ranges, Range range) {
  if (range.size() == 0) return;
  if (!ranges.empty() && ranges.back().end == range.begin) ranges.back().end = range.end;
  else ranges.push_back(range);
}

// What `held` and `window` share.
std::vector<Range> within(const std::vector<Range>& held, Range window) {
  std::vector<Range> shared;
  for (const Range& range : held) {
    const Range both{std::max(range.begin, window.begin), std::min(range.end, window.end)};
    if (both.begin < both.end) shared.push_back(both);
  }
  return shared;
}

// The rows `piece` of `held`, counted as if its ranges were one after the other.
void append_rows(const std::vector<Range>& held, Range piece, std::vector<Range>& out) {
  int64_t base = 0;
  for (const Range& range : held) {
    const int64_t begin = std::max(piece.begin, base),
                  end = std::min(piece.end, base + range.size());
    if (begin < end) append_merged(out, {range.begin + begin - base, range.begin + end - base});
    base += range.size();
  }
}

int64_t rows_of(const std::vector<Range>& ranges) {
  int64_t rows = 0;
  for (const Range& range : ranges) rows += range.size();
  return rows;
}

// Piece `index` of what is held of one dim, part by part.
std::vector<Range> cut(const std::vector<Range>& held, const std::vector<Part>& parts, int pieces,
                       int index) {
  std::vector<Range> mine;
  int64_t base = 0;
  for (const Part& part : parts) {
    const std::vector<Range> local = within(held, {base, base + part.extent});
    const int64_t rows = rows_of(local);
    TRIREME_CHECK(rows % part.unit == 0, "cutting ", rows, " rows in units of ", part.unit,
                  ": another axis has cut this dim within a unit");
    const Range piece = even_piece(rows / part.unit, pieces, index);
    append_rows(local, {piece.begin * part.unit, piece.end * part.unit}, mine);
    base += part.extent;
  }
  const int64_t end = held.back().end;
  return mine.empty() ? std::vector<Range>{{end, end}} : mine;
}

void check_fits(const Placement& placement, Axis axis, const Shape& shape) {
  TRIREME_CHECK(placement.dim >= 0 && placement.dim < static_cast<int>(shape.size()),
                "placement on axis ", name_of(axis), ": ", to_string(placement), " of a tensor ",
                to_string(shape), ", which has ", shape.size(), " dims");
  if (placement.parts.empty()) return;
  int64_t extent = 0;
  for (const Part& part : placement.parts) {
    TRIREME_CHECK(part.extent >= 0 && part.unit >= 1 && part.extent % part.unit == 0,
                  "placement on axis ", name_of(axis), ": a part of ", part.extent,
                  " rows is no whole number of units of ", part.unit);
    extent += part.extent;
  }
  TRIREME_CHECK(extent == shape[placement.dim], "placement on axis ", name_of(axis),
                ": the parts of ", to_string(placement), " add up to ", extent, ", but dim ",
                placement.dim, " of ", to_string(shape), " has ", shape[placement.dim]);
}

}  // namespace

Range even_piece(int64_t extent, int pieces, int index) {
  TRIREME_ASSERT(extent >= 0 && index >= 0 && index < pieces, "piece ", index, " of ", pieces,
                 " of ", extent);
  const int64_t rows = extent / pieces, longer = extent % pieces;
  const int64_t begin = index * rows + std::min<int64_t>(index, longer);
  return {begin, begin + rows + (index < longer ? 1 : 0)};
}

std::string to_string(const Placement& placement) {
  if (placement.replicated()) return "replicate";
  if (placement.is_partial()) return "partial";
  std::string text = concat("shard(", placement.dim);
  for (size_t i = 0; i < placement.parts.size(); ++i)
    text += concat(i ? "+" : ", ", placement.parts[i].extent);
  return text + ")";
}

Placements& Placements::set(Axis axis, Placement placement) {
  TRIREME_CHECK(axis != Axis::pipeline,
                "the pipeline axis places no tensor: it is on the stages whose blocks name it");
  axes_[static_cast<size_t>(axis)] = std::move(placement);
  return *this;
}

Placements Placements::gathered(AxisSet axes) const {
  Placements gathered = *this;
  for (Axis axis : axes.axes()) gathered.set(axis, Placement::replicate());
  return gathered;
}

std::string to_string(const Placements& placements) {
  std::string text;
  for (Axis axis : kCuttingAxes)
    if (!placements[axis].replicated())
      text += concat(text.empty() ? "" : ", ", name_of(axis), ": ", to_string(placements[axis]));
  return text.empty() ? "replicated" : text;
}

Slice local_slice(const Shape& shape, const Placements& placements, const Mesh& mesh, int rank) {
  numel_of(shape);  // refuses negative extents
  Slice slice = Slice::whole(shape);
  const PerAxis at = mesh.coordinates(rank);
  for (size_t i = kCuttingAxes.size(); i-- > 0;) {  // innermost first
    const Axis axis = kCuttingAxes[i];
    const Placement& placement = placements[axis];
    if (!placement.sharded()) continue;
    check_fits(placement, axis, shape);
    if (mesh.size(axis) == 1) continue;
    const std::vector<Part> one = {{shape[placement.dim], 1}};
    std::vector<Range>& held = slice.dims[placement.dim];
    held = cut(held, placement.parts.empty() ? one : placement.parts, mesh.size(axis), at[axis]);
  }
  return slice;
}

bool owns(const Placements& placements, const Mesh& mesh, int rank) {
  const PerAxis at = mesh.coordinates(rank);
  bool owner = true;
  for (Axis axis : kCuttingAxes) {
    TRIREME_CHECK(mesh.size(axis) == 1 || !placements[axis].is_partial(),
                  "a tensor that is partial on axis ", name_of(axis),
                  " has no owner: sum it first");
    if (placements[axis].replicated() && at[axis] != 0) owner = false;
  }
  return owner;
}

Placements produced_gradient(const Placements& used, const Placements& applied_to) {
  Placements produced;
  for (Axis axis : kCuttingAxes) {
    TRIREME_CHECK(!used[axis].is_partial(), "a parameter's value is partial on axis ",
                  name_of(axis), ", but a block computes with whole values or shards");
    if (used[axis].sharded()) produced.set(axis, used[axis]);
    else if (!applied_to[axis].replicated()) produced.set(axis, Placement::partial());
  }
  return produced;
}

GradientReduction gradient_reduction(const std::string& parameter, const Placements& produced,
                                     const Placements& wanted, const Mesh& mesh) {
  GradientReduction reduction;
  for (Axis axis : kCuttingAxes) {
    if (mesh.size(axis) == 1) continue;
    const Placement &is = produced[axis], &goal = wanted[axis];
    TRIREME_CHECK(!goal.is_partial() && (!is.sharded() || is == goal), "gradient of ", parameter,
                  " on axis ", name_of(axis), ": a backward produces ", to_string(is),
                  ", the update reads ", to_string(goal),
                  ", and no sum leads from one to the other");
    if (!is.is_partial()) continue;
    (goal.sharded() ? reduction.reduce_scatter : reduction.all_reduce).insert(axis);
  }
  return reduction;
}

Placements summed_over(AxisSet axes, const std::string& parameter, const Placements& produced,
                       const Placements& wanted, const Mesh& mesh) {
  Placements left = produced;
  for (Axis axis : axes.axes()) {
    if (axis != Axis::pipeline && mesh.size(axis) == 1) continue;
    TRIREME_CHECK(produced[axis].is_partial(), "gradient of ", parameter, " is summed over axis ",
                  name_of(axis), ", on which it is ", to_string(produced[axis]),
                  ": expected partial, or it is counted once for each rank");
    left.set(axis, wanted[axis]);
  }
  return left;
}

void check_gradient(const std::string& parameter, const Placements& value,
                    const Placements& gradient, const Mesh& mesh) {
  for (Axis axis : kCuttingAxes) {
    if (mesh.size(axis) == 1) continue;
    const Placement &is = gradient[axis], &needed = value[axis];
    const char* reason = nullptr;
    if (is.is_partial()) reason = "a sum over the axis is missing";
    else if (needed.is_partial()) reason = "a value that is held between steps is never partial";
    else if (is != needed && !(needed.replicated() && is.sharded()))
      reason = "they must be the same";
    TRIREME_CHECK(reason == nullptr, "parameter ", parameter, " on axis ", name_of(axis),
                  ": its value is ", to_string(needed), ", its gradient ", to_string(is), ": ",
                  reason);
  }
}

}  // namespace trireme
