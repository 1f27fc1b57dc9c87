#include "plan/program.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/log.h"

namespace trireme {
namespace {

const std::string& subject_name(const StepProgram& program, const Action& action) {
  static const std::string all = "all", part = "part";
  if (action.table >= 0) return program.table_names.at(static_cast<size_t>(action.table));
  const auto pick = [&](const std::vector<std::string>& names) -> const std::string& {
    return action.block >= 0 && action.block < static_cast<int32_t>(names.size())
               ? names[action.block]
               : all;
  };
  switch (action.kind) {
    case ActionKind::forward:
    case ActionKind::backward:
      return pick(program.block_names);
    case ActionKind::gather:
    case ActionKind::release:
    case ActionKind::reduce:
      return pick(program.unit_names);
    case ActionKind::pull_rows:
    case ActionKind::push_rows:
    case ActionKind::norm:
      return all;
    case ActionKind::update:
      return part;
  }
  return all;
}

// Every access of a slot so far, as link() walks the list.
struct Accesses {
  std::vector<ActionId> makers;  // writers and adders
  std::vector<ActionId> readers;
};

}  // namespace

std::string_view name_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::gather:
      return "gather";
    case ActionKind::release:
      return "release";
    case ActionKind::forward:
      return "forward";
    case ActionKind::backward:
      return "backward";
    case ActionKind::reduce:
      return "reduce";
    case ActionKind::pull_rows:
      return "pull_rows";
    case ActionKind::push_rows:
      return "push_rows";
    case ActionKind::norm:
      return "norm";
    case ActionKind::update:
      return "update";
  }
  return "?";
}

std::string describe(const StepProgram& program, ActionId id) {
  const Action& action = program.actions.at(static_cast<size_t>(id));
  std::string text = concat(name_of(action.kind), " ", subject_name(program, action));
  if (action.micro >= 0) text += concat(" micro ", action.micro);
  return text + (action.lane == kCommunicationLane ? " (communication)"
                                                   : concat(" (lane ", action.lane, ")"));
}

void link(StepProgram& program) {
  std::vector<Accesses> accesses(program.slots.size());
  for (ActionId id = 0; id < static_cast<ActionId>(program.actions.size()); ++id) {
    Action& action = program.actions[id];
    std::set<ActionId> after;
    const auto wait_for = [&](const std::vector<ActionId>& others) {
      for (ActionId other : others)
        if (program.actions[other].lane != action.lane) after.insert(other);
    };
    for (SlotId slot : action.reads) wait_for(accesses[slot].makers);
    // Weights are released by an action of their own, after every reader.
    if (action.kind == ActionKind::release)
      for (SlotId slot : action.reads) wait_for(accesses[slot].readers);
    for (SlotId slot : action.reads) accesses[slot].readers.push_back(id);
    for (SlotId slot : action.writes) accesses[slot].makers.push_back(id);
    for (SlotId slot : action.adds) accesses[slot].makers.push_back(id);
    action.after.assign(after.begin(), after.end());
    action.frees.clear();
  }
  for (SlotId slot = 0; slot < static_cast<SlotId>(accesses.size()); ++slot)
    if (!accesses[slot].readers.empty())
      program.actions[*std::ranges::max_element(accesses[slot].readers)].frees.push_back(slot);
}

Peak peak_of(const StepProgram& program) {
  std::vector<bool> alive(program.slots.size());
  std::vector<ActionId> running(static_cast<size_t>(program.lanes), -1);
  int64_t bytes = program.resident_bytes;
  Peak peak{bytes, -1};
  const auto end = [&](ActionId id) {
    const Action& action = program.actions[id];
    bytes -= action.scratch_bytes;
    for (SlotId slot : action.frees)
      if (alive[slot]) alive[slot] = false, bytes -= program.slots[slot].bytes;
  };
  for (ActionId id = 0; id < static_cast<ActionId>(program.actions.size()); ++id) {
    const Action& action = program.actions[id];
    const bool computes = action.lane != kCommunicationLane;
    if (computes)
      if (const ActionId before = std::exchange(running[action.lane], id); before >= 0) end(before);
    bytes += action.scratch_bytes;
    for (const auto* made : {&action.writes, &action.adds})
      for (SlotId slot : *made)
        if (!alive[slot]) alive[slot] = true, bytes += program.slots[slot].bytes;
    if (bytes > peak.bytes) peak = {bytes, id};
    if (!computes) end(id);
  }
  return peak;
}

double flops_of(const StepProgram& program) {
  double sum = 0;
  for (const Action& action : program.actions) sum += action.flops;
  return sum;
}

std::string to_text(const StepProgram& program) {
  std::string text;
  const auto list = [&](std::string_view what, const std::vector<SlotId>& slots) {
    if (slots.empty()) return;
    text += concat("  ", what);
    for (SlotId slot : slots) text += concat(" ", program.slots[slot].name);
  };
  for (ActionId id = 0; id < static_cast<ActionId>(program.actions.size()); ++id) {
    const Action& action = program.actions[id];
    std::string head = concat(id);
    text += std::string(head.size() < 5 ? 5 - head.size() : 0, ' ') + head + "  " +
            describe(program, id);
    if (action.keeps_tape) text += ", keeps its graph";
    list("reads", action.reads);
    list("writes", action.writes);
    list("adds to", action.adds);
    list("frees", action.frees);
    if (!action.after.empty()) {
      text += "  after";
      for (ActionId other : action.after) text += concat(" ", other);
    }
    if (action.bytes > 0)
      text += concat("  moves ", format_bytes(static_cast<uint64_t>(action.bytes)));
    text += '\n';
  }
  return text;
}

}  // namespace trireme
