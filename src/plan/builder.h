// Writes step programs.
#pragma once

#include "plan/graph.h"
#include "plan/program.h"

namespace trireme {

// What backward computes again instead of keeping: nothing; what each block can make again at
// little cost; whole blocks.
enum class Recompute { none, selective, block };

struct TrainingPlan {
  std::vector<int64_t> micro_samples;  // samples of each of this rank's micro-batches
  int32_t lanes = 1;                   // micro-batch m runs on lane m mod lanes
  bool sharded =
      false;  // weights live in shards: gather and release around each block, reduce per wave
  bool reduce_between_ranks =
      false;  // gradients are summed with other ranks (replica or shard above one)
  Recompute recompute = Recompute::none;
  int64_t resident_bytes = 0;
};

// Forward and backward of all micro-batches, reduction, norm, update.
//
// Alone: lanes run through their micro-batches independently; during the last backwards they sum
// their gradients unit by unit, so that with one micro-batch a lane only the first lane's gradients
// live to the end. Then they meet for the norm and the update.
// Sharded: micro-batches go in waves of one a lane, so that a gather serves a wave; at most two
// units are gathered at once, the next one while the present one computes; a unit's gradient is
// reduced as soon as its last backward of the wave is done, into the shard that this rank owns. The
// program comes linked. InternalError if the graph reads a value that no earlier block writes.
StepProgram build_training(const Graph& graph, const TrainingPlan& plan);

// Forward alone, in one micro-batch a lane: scoring, evaluation, generation.
StepProgram build_forward(const Graph& graph, const TrainingPlan& plan);

}  // namespace trireme
