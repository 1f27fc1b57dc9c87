// The step as a program: per rank an ordered list of typed actions over slots.
//
// A slot is a named value that one action writes and others read: a block's output, its gradient,
// the graph that a forward keeps for its backward, gathered weights, a gradient that several
// actions add into. Everything that can be wrong with a schedule is a statement about slots, which
// is why the verifier needs no knowledge of any schedule.
//
// The list is in one total order. Actions of one lane run in that order; across lanes only `after`
// orders them. A lane is one thread of the rank: lanes 0, 1, … compute, kCommunicationLane moves
// data between ranks.
//
// Four readers share the program: the executor runs it, the verifier proves it, --dry-run prints
// and prices it, and a diagnosis names the action on which a rank stands. A new schedule is a new
// list: data, not code. Values; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class ActionKind : uint8_t {
  gather,     // makes a unit's whole weights out of the ranks' shards
  release,    // frees gathered weights
  forward,    // runs a block on one micro-batch
  backward,   // turns the gradient of a block's outputs into those of its inputs and weights
  reduce,     // sums a unit's gradients over lanes and ranks into what this rank owns; on a compute
              // lane: that lane's part of the unit, over the lanes
  pull_rows,  // reads the rows of a table that a micro-batch names
  push_rows,  // hands the gradients of pulled rows to their table
  norm,       // agrees on the norm of the whole gradient, from which the clipping follows
  update,     // steps the optimizer on the lane's part of what this rank owns, or on a table
};

std::string_view name_of(ActionKind kind);

using SlotId = int32_t;
using ActionId = int32_t;

inline constexpr int32_t kCommunicationLane = -1;

enum class SlotKind : uint8_t {
  value,             // a block's output, or a gradient of one
  tape,              // what a forward keeps for its backward; read exactly once
  weights,           // gathered weights; freed by an explicit release
  gradient,          // added into by backwards, read by reduce
  reduced_gradient,  // added into by reduces, read by norm and update
  scalar,            // the gradient norm
};

struct Slot {
  std::string name;
  SlotKind kind;
  int64_t bytes = 0;  // while it lives
};

struct Action {
  ActionKind kind;
  int32_t block = -1;  // forward, backward: the block; gather, release, reduce: the unit
  int32_t table = -1;  // pull_rows, push_rows, and update when it is a table that is updated
  int32_t micro = -1;
  int32_t lane = 0;
  bool keeps_tape = false;  // forward: a backward follows this very run
  std::vector<SlotId> reads, writes;
  std::vector<SlotId> adds;     // accumulates into; the first to add makes the slot
  std::vector<SlotId> frees;    // dead after this action; filled by link()
  std::vector<ActionId> after;  // actions of other lanes that must be done; filled by link()
  int64_t bytes = 0;            // moved between ranks
  int64_t scratch_bytes = 0;    // taken and given back while it runs
  double flops = 0;
};

struct StepProgram {
  std::vector<std::string> block_names, unit_names, table_names;
  std::vector<int64_t> micro_samples;  // samples of each micro-batch
  int32_t lanes = 1;
  bool remakes = false;  // blocks make again in backward what costs little, instead of keeping it
  std::vector<Slot> slots;
  std::vector<Action> actions;
  int64_t resident_bytes = 0;  // weights, moments and whatever else lives through the step
};

// "forward layer 3 micro 1 (lane 0)"
std::string describe(const StepProgram& program, ActionId action);

// Derives `after` and `frees` from the slots and the order of the list. Call it once, after
// building.
void link(StepProgram& program);

// Bytes alive at the worst action, resident ones included, when actions start in list order and
// compute lanes run side by side: what an action frees or takes for itself lasts until its lane
// turns to the next.
struct Peak {
  int64_t bytes = 0;
  ActionId action = -1;
};
Peak peak_of(const StepProgram& program);

double flops_of(const StepProgram& program);

// One line an action: number, lane, what, slots, bytes.
std::string to_text(const StepProgram& program);

}  // namespace trireme
