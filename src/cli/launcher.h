// Ranks as processes of this machine: who starts them, waits for them, and tells how they ended.
//
// The process that the user started computes nothing: it makes the shared memory, starts this same
// command once a rank by posix_spawn, passes SIGINT and SIGTERM on, and waits. The first failure of
// the run (a rank's own words, or how its process ended) is the one message; whoever is left then
// gets a few seconds to end by itself, and is killed. Ranks die with the process that started them.
// Rank 0 speaks to the user; what another writes to stderr is shown only if it dies without words.
#pragma once

#include <chrono>
#include <functional>

#include "fabric/shared_region.h"

namespace trireme {

// True in a process that launch_ranks() started.
bool is_launched_rank();

// Starts `ranks` processes with the arguments of this one and returns rank 0's exit code once all
// have ended well. After a failure: one message to stderr, and that failure's exit code. A rank
// that stands stopped for `timeout` has failed.
int launch_ranks(int ranks, std::chrono::milliseconds timeout);

// In such a process: runs `rank_main` and returns the exit code. What it throws goes to the one who
// started us, who prints it.
int run_launched_rank(const std::function<int(SharedRegion&)>& rank_main);

// InputError if torchrun, Slurm or Open MPI started this process as one of several, which would all
// write to one run.
void refuse_foreign_launcher();

}  // namespace trireme
