// Which checkpoints a run has, which of them to trust, and which to keep.
//
// Names in `checkpoints/`: `step-00000100` (or `-2`, `-3`, … when a step was saved again) is
// committed; `….partial` is being written, or was when the writer died; `….removed` is being
// removed. Nothing else is ever touched. `latest` is a hint for people and is never read here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "state/checkpoint.h"
#include "state/storage.h"

namespace trireme {

struct CheckpointName {
  enum class State { committed, partial, removed };
  int64_t step = 0;
  int64_t again = 1;  // the how-manieth save of this step
  State state = State::committed;
};

std::string to_string(const CheckpointName& name);
std::optional<CheckpointName> parse_checkpoint_name(std::string_view text);  // only to_string's

struct CheckpointEntry {
  CheckpointName name;
  fs::path path;
  int64_t bytes = 0;                // of its files
  int64_t samples = 0, tokens = 0;  // consumed, of a committed one that is in order
  std::string problem;  // of a committed one whose manifest or files are not in order; else ""
};

// Newest first. Opens each manifest, reads no tensor. Empty if the directory is missing. What
// vanishes meanwhile, because the run prunes, is left out.
std::vector<CheckpointEntry> list_checkpoints(Storage& storage, const fs::path& checkpoints);

// The newest committed checkpoint that is in order; says on the log which newer ones are not.
std::optional<fs::path> newest_committed(Storage& storage, const fs::path& checkpoints);

// Calls load() with the newest checkpoint, and when it turns out to be damaged (DamagedError), says
// so and goes on with the one before. Returns the one that was loaded; nullopt if there is none.
std::optional<fs::path> load_newest(Storage& storage, const fs::path& checkpoints,
                                    const std::function<void(const Checkpoint&)>& load);

struct RetentionPolicy {
  int64_t keep = 3;                // the newest ones that are in order; REQUIRES: > 0
  int64_t every_steps = 0;         // and those whose step is a multiple of this; 0: none
  std::vector<std::string> names;  // and these
  // Known to be good, such as the one just committed. Without it the newest is read and verified
  // before anything is removed.
  std::string trusted;
};

// Removes what the policy does not keep and returns the paths. The newest good checkpoint stays
// whatever the policy says; partial ones and those of a newer step than it are left alone.
// `dry_run` only returns them.
std::vector<fs::path> prune_checkpoints(Storage& storage, const fs::path& checkpoints,
                                        const RetentionPolicy& policy, bool dry_run = false);

// Removes older saves of a step that was saved again. commit_checkpoint() calls it.
void remove_superseded(Storage& storage, const fs::path& checkpoints, const CheckpointName& by);

// Removes what crashed saves and removals left behind, and returns the paths. REQUIRES: the caller
// holds the run's lock. A directory with a name of ours that holds what we never write stays.
std::vector<fs::path> remove_leftovers(Storage& storage, const fs::path& checkpoints);

}  // namespace trireme
