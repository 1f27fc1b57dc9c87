// Why a group is dead, and how its ranks say so; the same words on every fabric.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "fabric/operation.h"

namespace trireme {

struct GroupFailure {
  std::string operation;  // "" if it came from outside the group
  uint64_t sequence = 0;
  std::vector<int> missing;  // global ranks
  std::string reason;
};

// FabricError: "all_reduce_sum #17 in group shard (ranks 0, 2): rank 2 did not …", said by an
// operation of this kind and number; if another one failed first, the text names that one too.
[[noreturn]] void throw_failure(const std::string& group, const std::vector<int>& members,
                                const GroupFailure& failure, OpKind kind, uint64_t sequence);

// The ways to fail, as `reason` says them.
std::string ended_without_it(const std::vector<int>& ranks);
std::string did_not_arrive(const std::vector<int>& ranks, std::chrono::milliseconds timeout);
std::string did_not_answer(OpKind kind, int partner, std::chrono::milliseconds timeout);

}  // namespace trireme
