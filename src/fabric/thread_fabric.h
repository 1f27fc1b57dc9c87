// Ranks that are threads of one process.
//
// The simple idea: the ranks of a group meet, one of them checks that they all make the same
// operation, then each does its share of the work by reading its peers' memory, and they meet again
// before anybody touches the memory. Nothing is copied on the way. Sums run over ranks 0, 1, 2, …
// whoever arrives first, so results are the same bits in every run.
//
// Failure. A rank whose function throws aborts the run: what the others wait for or begin next
// throws a FabricError that names that rank and its error. A rank that returns is gone: waiting for
// it fails at once. Once all ranks have met, an operation is finished whatever happens, because
// memory is being read.
#pragma once

#include <functional>

#include "fabric/fabric.h"

namespace trireme {

// Runs `rank_main` on `ranks` threads, one a rank, each with one ATen thread, and waits for all.
// Rethrows the error that came first. The caller's ATen thread count is what it was. Nothing of the
// Fabric outlives the call.
void run_ranks(int ranks, const std::function<void(Fabric&)>& rank_main,
               const FabricOptions& options = {});

}  // namespace trireme
