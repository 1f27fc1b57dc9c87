// A run's state as checkpoints: weights, moments, tables, data position; written by all ranks, read
// on any layout.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/parameters.h"
#include "fabric/fabric.h"
#include "state/checkpoint.h"
#include "state/store.h"
#include "train/optimizer.h"
#include "train/task.h"

namespace trireme {

// Where a run stands between two steps. Random numbers are functions of seed and step, so this and
// the tensors are all.
struct Position {
  int64_t step = 0;     // steps done
  int64_t samples = 0;  // training samples consumed
  int64_t updates = 0;  // of the optimizer: steps that were not left out
};

struct TrainingState {
  Parameters& parameters;
  DenseOptimizer* optimizer = nullptr;  // null: weights only
  TableState* tables = nullptr;
};

// Called by every rank alike. Rank 0 begins and commits; each rank writes what it owns, replicated
// state once. Returns the path on rank 0. StorageError on every rank if it fails on any; the last
// good checkpoint stays.
fs::path save_checkpoint(Storage& storage, const fs::path& checkpoints, Fabric& fabric,
                         const Mesh& mesh, const TrainingState& state, CheckpointInfo info,
                         const Position& position, const Attachments& attachments);

// The checkpoint's weights are exactly the model's, or an InputError names those that are not.
void require_weights(const Checkpoint& checkpoint, const Model& model);

// Fills what this rank owns. InputError names tensors that are missing, unexpected or of another
// shape.
Position load_checkpoint(const Checkpoint& checkpoint, const Model& model,
                         const TrainingState& state);

}  // namespace trireme
