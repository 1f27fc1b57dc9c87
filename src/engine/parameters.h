// The weights of a model as one rank holds them.
//
// A unit is the weights that one block owns: one flat buffer, its parameters one behind the other
// in the order of the block's declaration, so that a weight of several parts (q|k|v) is one view.
// With ZeRO-3 a rank owns some rows of each parameter, near-equal pieces of dim 0, and keeps them
// in a flat shard; the whole buffer then has memory only between gather and release. Otherwise the
// shard is the whole buffer. Gradients, moments and checkpoints follow the shard.
//
// Threads: construction and initialize() one; leaves() one a lane; the rest as the step program
// orders it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "fabric/segments.h"
#include "layout/mesh.h"
#include "layout/slice.h"
#include "nn/model.h"

namespace trireme {

// One parameter within its unit.
struct Piece {
  ParameterSpec spec;
  int64_t whole_offset = 0, whole_numel = 0;  // in the unit's whole buffer
  int64_t shard_offset = 0, shard_numel = 0;  // in the shard of this rank
  Slice slice;                                // what this rank owns, in global coordinates
};

struct Unit {
  std::string name;
  std::vector<Piece> pieces;
  std::vector<Segment> weights;  // of the whole buffer, and the shapes of their views
  std::vector<Shape> weight_shapes;
  SegmentMap segments;  // of the whole buffer, for each rank of the shard group
  int64_t whole_numel = 0, shard_numel = 0;
  at::Tensor whole;  // flat; without memory while released
  at::Tensor shard;  // flat; the same tensor as `whole` unless sharded
};

class Parameters {
 public:
  // `sharded`: rows are dealt out over the mesh's shard axis. The model outlives this. InputError
  // if two parameters have one name.
  Parameters(const Model& model, at::ScalarType dtype, const Mesh& mesh, int rank, bool sharded,
             int lanes);

  // Every element from (seed, parameter name, global index); what this rank owns only. Uses
  // `threads` threads.
  void initialize(uint64_t seed, int threads);

  std::vector<Unit>& units() { return units_; }
  const std::vector<Unit>& units() const { return units_; }
  at::ScalarType dtype() const { return dtype_; }
  bool sharded() const { return sharded_; }
  int lanes() const { return lanes_; }

  // For the block of this index: the units and weights it reads, its own first.
  struct WeightRef {
    int32_t unit, weight;
  };
  const std::vector<WeightRef>& weights_of_block(size_t block) const {
    return block_weights_[block];
  }

  // The leaf through which a lane's blocks see a weight: shares the whole buffer's memory, requires
  // a gradient.
  at::Tensor& leaf(int lane, WeightRef weight) {
    return leaves_[static_cast<size_t>(lane)][static_cast<size_t>(weight.unit)]
                  [static_cast<size_t>(weight.weight)];
  }

  // ZeRO-3: gives the whole buffer memory, or takes it away. Every leaf follows.
  void materialize(Unit& unit);
  void release(Unit& unit);

  int64_t owned_bytes() const;

 private:
  at::ScalarType dtype_;
  bool sharded_;
  int lanes_;
  std::vector<Unit> units_;
  std::vector<std::vector<WeightRef>> block_weights_;
  std::vector<std::vector<std::vector<at::Tensor>>> leaves_;  // [lane][unit][weight]
};

}  // namespace trireme
