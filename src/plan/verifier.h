// Proves a step program before it runs.
#pragma once

#include <optional>
#include <string>

#include "plan/graph.h"
#include "plan/program.h"

namespace trireme {

// nullopt if the program is right, else what is wrong with it and at which action. Right means:
//   1. every lane, slot, block and micro-batch that is named exists, and `after` points backwards
//   (so nothing waits for
//      itself, and no order of arrival can deadlock);
//   2. a slot has one writer, or adders only; each is read, and its reader happens after all who
//   make it; happening
//      after is what lane order and `after` together imply, not the order of the list;
//   3. nothing touches a slot after it is freed, each slot is freed exactly once, and a tape is
//   read exactly once;
//   4. no action stands twice; each block runs forward once a micro-batch and, if the program
//   trains, backward once
//      (one more forward for a backward that recomputes);
//   5. a forward or backward reads every value of its block; of a sharded unit it reads the
//   gathered weights, and what is gathered is released;
//   6. every gradient is reduced and every reduced gradient is updated.
// Cost: actions² / 64 words for the happens-after relation; milliseconds for thousands of actions.
std::optional<std::string> find_fault(const StepProgram& program, const Graph& graph);

// InternalError with the fault.
void verify(const StepProgram& program, const Graph& graph);

}  // namespace trireme
