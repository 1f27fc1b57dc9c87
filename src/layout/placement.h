// Where the elements of a tensor are on a mesh, and what follows from it: slices, gradient sums,
// owners.
//
// A Placement says what one axis does to a tensor:
//   replicate           every rank along the axis holds the same elements
//   shard(dim, parts)   each holds its own rows of one dim
//   partial             each holds a summand of every element; the value is their sum
// Placements has one for each axis, `replicate` unless set. The pipeline axis has none: a tensor is
// on the stages whose blocks name it, which the program knows; everything here speaks of the ranks
// of one stage.
//
// Cutting. n rows over k ranks: near-equal contiguous pieces, the first n mod k ranks have one row
// more, and a rank may get none. A fused weight (q|k|v, gate|up) is cut part by part: each rank
// gets its piece of every part, in part order, so that it holds a small fused weight. A part is cut
// in whole units (a head's rows stay together).
//
// Where two axes cut one dim, the inner mesh axis cuts first and the outer one cuts what that left,
// as if it were a tensor of its own. So with tensor and shard on dim 0, gathering over `shard`
// gives exactly the tensor rank's local weight, in its order: the pieces of the shard ranks lie one
// after the other. Any thread; values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "layout/mesh.h"
#include "layout/slice.h"

namespace trireme {

// Piece `index` of `pieces` of `extent` rows, by the rule above.
Range even_piece(int64_t extent, int pieces, int index);

// One of the weights that were fused along a dim. The extents of all parts add up to the dim's.
struct Part {
  int64_t extent = 0;
  int64_t unit = 1;  // rows that stay together; divides extent
  bool operator==(const Part&) const = default;
};

struct Placement {
  enum class Kind : uint8_t { replicate, shard, partial };

  Kind kind = Kind::replicate;
  int dim = 0;              // shard only
  std::vector<Part> parts;  // shard only; empty means one part of unit one

  static Placement replicate() { return {}; }
  static Placement shard(int dim, std::vector<Part> parts = {}) {
    return {Kind::shard, dim, std::move(parts)};
  }
  static Placement partial() { return {Kind::partial, 0, {}}; }

  bool replicated() const { return kind == Kind::replicate; }
  bool sharded() const { return kind == Kind::shard; }
  bool is_partial() const { return kind == Kind::partial; }
  bool operator==(const Placement&) const = default;
};

// "replicate", "shard(0)", "shard(0, 64+32+32)", "partial"
std::string to_string(const Placement& placement);

class Placements {
 public:
  Placements() = default;

  Placements& set(Axis axis, Placement placement);  // InputError for the pipeline axis
  Placements with(Axis axis, Placement placement) const {
    return Placements(*this).set(axis, std::move(placement));
  }
  Placements gathered(AxisSet axes) const;  // replicate on these: what a block sees after a gather
  const Placement& operator[](Axis axis) const { return axes_[static_cast<size_t>(axis)]; }
  bool operator==(const Placements&) const = default;

 private:
  std::array<Placement, kAxes.size()> axes_;
};

// "shard: shard(0), tensor: shard(1)"; "replicated"
std::string to_string(const Placements& placements);

// What `rank` holds of a tensor of this shape. In each dim the ranges are merged where they touch;
// a rank without elements has one empty range in the dim that was cut. InputError if a placement
// does not fit the shape.
Slice local_slice(const Shape& shape, const Placements& placements, const Mesh& mesh, int rank);

// Of the ranks that hold the same elements, one is the owner: coordinate 0 on every axis that
// replicates. It counts them in norms and writes them into checkpoints. InputError if an axis above
// one is partial: nobody has the value.
bool owns(const Placements& placements, const Mesh& mesh, int rank);

// --- Gradients ---
//
// Three placements of one parameter, and how they follow from each other:
//   used      what the block computes with: the value's, gathered over the axes that ZeRO-3 gathers
//   produced  of the gradient after a backward: derived from `used` and from the activations that
//             the parameter is applied to
//   wanted    of the gradient that `update` reads, and of the moments: the value's, or with ZeRO-1
//             and 2, whose value is replicated over `shard`, a shard of it

// On each axis: a parameter used in shards has its gradient in the same shards. One used whole has
// a partial gradient if the activations it is applied to differ along the axis (cut by tokens or
// heads, or partial), else a replicated one. So a norm's gradient is replicated over `tensor`, and
// partial under sequence parallelism, and nobody tags it.
Placements produced_gradient(const Placements& used, const Placements& applied_to);

// The sums that lead from `produced` to `wanted`.
struct GradientReduction {
  AxisSet all_reduce;      // partial -> replicate: every rank keeps the sum
  AxisSet reduce_scatter;  // partial -> shard: each keeps its rows of the sum
  bool operator==(const GradientReduction&) const = default;
};

// Axes of size one never appear. InputError, naming parameter and axis, where no sum leads there:
// for example a gradient in shards whose parameter is updated whole. A gradient already complete on
// an axis and wanted in shards is cut locally.
GradientReduction gradient_reduction(const std::string& parameter, const Placements& produced,
                                     const Placements& wanted, const Mesh& mesh);

// What is left after a sum over `axes`. InputError, naming parameter and axis, if the gradient was
// already complete on one of them: it would be counted once for each rank.
Placements summed_over(AxisSet axes, const std::string& parameter, const Placements& produced,
                       const Placements& wanted, const Mesh& mesh);

// The static check: InputError, naming parameter and first axis above one, unless a gradient placed
// as `gradient` can update a value placed as `value`. They agree where they are equal, and where
// the value is replicated and the gradient cut (ZeRO-1 and 2 update a shard and gather the value).
// A gradient that is still partial never agrees.
void check_gradient(const std::string& parameter, const Placements& value,
                    const Placements& gradient, const Mesh& mesh);

}  // namespace trireme
