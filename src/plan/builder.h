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
  bool sharded = false;  // weights, gradients and moments are dealt out over the shard group
  int32_t zero = 3;      // if sharded: what of them is whole during the step, see below
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
// Sharded: micro-batches go in waves of one a lane, so that a gather serves a wave; units are
// gathered one visit ahead, and gradients reduced into the shard that this rank owns, a unit as
// soon as its gradient is whole. ZeRO stages trade memory for moved bytes:
//   3  weights are gathered for each visit and released behind it, at most two units at once (and a
//      tied one); gradients are reduced once a wave
//   2  weights are gathered once and stay to their last use in the step; gradients as with 3
//   1  weights as with 2; gradients of all waves add up and are reduced once
// Between steps a rank holds its shard alone, in every stage. The program comes linked.
// InternalError if the graph reads a value that no earlier block writes.
StepProgram build_training(const Graph& graph, const TrainingPlan& plan);

// Forward alone, in one micro-batch a lane: scoring, evaluation, generation.
StepProgram build_forward(const Graph& graph, const TrainingPlan& plan);

}  // namespace trireme
