// What one rank does of a collective when it can read and write the memory of all.
#pragma once

#include <span>

#include "fabric/operation.h"

namespace trireme {

// The share of group rank `rank` of the collective that these operations, one a rank, make
// together. Shares of different ranks write different memory and read no memory that another
// writes, so they may run at the same time. REQUIRES: disagreement() finds none. Never throws:
// peers are waiting.
void execute_share(std::span<const Operation* const> by_rank, int rank) noexcept;

}  // namespace trireme
