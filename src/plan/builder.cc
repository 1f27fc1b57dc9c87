#include "plan/builder.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"

namespace trireme {
namespace {

using Units = std::set<int32_t>;

// What both builders share: slots by name, and how a block's forward becomes an action.
class Writer {
 public:
  Writer(const Graph& graph, const TrainingPlan& plan) : graph_(graph), plan_(plan) {
    TRIREME_ASSERT(plan.lanes > 0 && !plan.micro_samples.empty());
    for (const GraphBlock& block : graph.blocks) program.block_names.push_back(block.name);
    for (const GraphUnit& unit : graph.units) program.unit_names.push_back(unit.name);
    program.table_names = graph.tables;
    program.micro_samples = plan.micro_samples;
    program.lanes = plan.lanes;
    program.remakes = plan.recompute == Recompute::selective;
    program.resident_bytes = plan.resident_bytes;
    for (const GraphBlock& block : graph.blocks)
      for (const std::string& input : block.inputs) ++consumers_[input];
  }

  int32_t blocks() const { return static_cast<int32_t>(graph_.blocks.size()); }
  int32_t micros() const { return static_cast<int32_t>(plan_.micro_samples.size()); }
  int32_t lane_of(int32_t micro) const { return micro % plan_.lanes; }
  const GraphBlock& block(int32_t b) const { return graph_.blocks[static_cast<size_t>(b)]; }

  SlotId slot(const std::string& name, SlotKind kind, int64_t bytes) {
    const auto [at, fresh] = slots_.try_emplace(name, static_cast<SlotId>(program.slots.size()));
    if (fresh) program.slots.push_back({name, kind, bytes});
    return at->second;
  }

  SlotId known_slot(const std::string& name) const {
    const auto at = slots_.find(name);
    TRIREME_ASSERT(at != slots_.end(), "a block reads ", name, ", which nothing before it writes");
    return at->second;
  }

  int64_t value_bytes(int32_t b, int32_t m) const {
    const GraphBlock& g = block(b);
    const auto outputs = std::max<size_t>(g.outputs.size(), 1);
    return g.cost.output_bytes * samples(m) / static_cast<int64_t>(outputs);
  }

  int64_t samples(int32_t m) const { return plan_.micro_samples[static_cast<size_t>(m)]; }

  static std::string at(const std::string& name, int32_t micro) { return concat(name, "@", micro); }
  static std::string rows(const std::string& table, int32_t micro) {
    return concat("rows ", table, "@", micro);
  }

  // The micro-batches [begin, end) that run at the same time, one a lane.
  struct Wave {
    int32_t index, begin, end;
  };
  std::vector<Wave> waves() const {
    std::vector<Wave> all;
    for (int32_t m = 0; m < micros(); m += plan_.lanes)
      all.push_back({static_cast<int32_t>(all.size()), m, std::min(m + plan_.lanes, micros())});
    return all;
  }

  void gather(const Units& wanted) {
    for (int32_t unit : wanted) {
      if (gathered_.contains(unit)) continue;
      const GraphUnit& g = graph_.units[static_cast<size_t>(unit)];
      gathered_[unit] =
          slot(concat("weights ", g.name, "#", gathers_++), SlotKind::weights, g.whole_bytes);
      program.actions.push_back({.kind = ActionKind::gather,
                                 .block = unit,
                                 .lane = kCommunicationLane,
                                 .writes = {gathered_[unit]},
                                 .bytes = g.whole_bytes - g.shard_bytes});
    }
  }

  void release_all_but(const Units& wanted) {
    for (auto at = gathered_.begin(); at != gathered_.end();) {
      if (wanted.contains(at->first)) {
        ++at;
        continue;
      }
      program.actions.push_back({.kind = ActionKind::release,
                                 .block = at->first,
                                 .lane = kCommunicationLane,
                                 .reads = {at->second}});
      at = gathered_.erase(at);
    }
  }

  Units units_of(int32_t b) const { return {block(b).units.begin(), block(b).units.end()}; }

  void pull(int32_t b, int32_t m) {
    for (int32_t table : block(b).tables)
      program.actions.push_back({.kind = ActionKind::pull_rows,
                                 .table = table,
                                 .micro = m,
                                 .lane = lane_of(m),
                                 .writes = {slot(rows(graph_.tables[static_cast<size_t>(table)], m),
                                                 SlotKind::value, 0)}});
  }

  // `again`: the second run of a recomputed block, which makes only the tape.
  void forward(int32_t b, int32_t m, int32_t wave, bool keeps_tape, bool again = false) {
    const GraphBlock& g = block(b);
    Action action{.kind = ActionKind::forward,
                  .block = b,
                  .micro = m,
                  .lane = lane_of(m),
                  .keeps_tape = keeps_tape};
    action.reads = inputs(b, m);
    add_weights(b, action.reads);
    if (!again)
      for (const std::string& output : g.outputs)
        action.writes.push_back(slot(at(output, m), SlotKind::value, value_bytes(b, m)));
    const int64_t remade = program.remakes ? g.cost.remade_bytes : 0;
    if (keeps_tape)
      action.writes.push_back(
          slot(at("tape " + g.name, m), SlotKind::tape, (g.cost.tape_bytes - remade) * samples(m)));
    if (keeps_tape && g.forward_adds)
      for (int32_t unit : g.units) action.adds.push_back(gradient(unit, lane_of(m), wave));
    action.flops = g.cost.forward_flops * static_cast<double>(samples(m));
    action.scratch_bytes =
        std::min(g.cost.forward_scratch_limit, g.cost.forward_scratch_bytes * samples(m));
    program.actions.push_back(std::move(action));
  }

  // `wave` names the gradient slots apart when a unit is reduced once a wave.
  void backward(int32_t b, int32_t m, int32_t wave) {
    const GraphBlock& g = block(b);
    Action action{.kind = ActionKind::backward, .block = b, .micro = m, .lane = lane_of(m)};
    action.reads = inputs(b, m);  // their memory is the tape's, so they live until here
    action.reads.push_back(known_slot(at("tape " + g.name, m)));
    for (const std::string& output : g.outputs)
      action.reads.push_back(known_slot(at("d " + output, m)));
    add_weights(b, action.reads);
    for (const std::string& input : g.inputs) {
      const SlotId gradient =
          slot(at("d " + input, m), SlotKind::value, program.slots[known_slot(at(input, m))].bytes);
      (consumers_.at(input) > 1 ? action.adds : action.writes).push_back(gradient);
    }
    for (int32_t table : g.tables)
      action.writes.push_back(
          slot("d " + rows(graph_.tables[static_cast<size_t>(table)], m), SlotKind::value, 0));
    for (int32_t unit : g.units) action.adds.push_back(gradient(unit, lane_of(m), wave));
    action.flops = 2 * g.cost.forward_flops * static_cast<double>(samples(m));
    const int64_t remade = program.remakes ? g.cost.remade_scratch_bytes : 0;
    action.scratch_bytes = (g.cost.backward_scratch_bytes + remade) * samples(m);
    program.actions.push_back(std::move(action));
  }

  void push(int32_t b, int32_t m) {
    for (int32_t table : block(b).tables)
      program.actions.push_back(
          {.kind = ActionKind::push_rows,
           .table = table,
           .micro = m,
           .lane = lane_of(m),
           .reads = {known_slot("d " + rows(graph_.tables[static_cast<size_t>(table)], m))},
           .adds = {pushed(table)}});
  }

  SlotId gradient(int32_t unit, int32_t lane, int32_t wave) {
    const GraphUnit& g = graph_.units[static_cast<size_t>(unit)];
    return slot(concat("gradient ", g.name, ":", lane, wave < 0 ? "" : concat("#", wave)),
                SlotKind::gradient, g.whole_bytes);
  }

  // Alone: each lane sums its part of what all lanes have of a unit, in the first lane's buffer.
  void reduce_parts(int32_t unit) {
    const std::string& name = graph_.units[static_cast<size_t>(unit)].name;
    for (int32_t lane = 0; lane < plan_.lanes; ++lane) {
      Action action{.kind = ActionKind::reduce, .block = unit, .lane = lane};
      for (int32_t other = 0; other < std::min(plan_.lanes, micros()); ++other)
        action.reads.push_back(gradient(unit, other, -1));
      // Bytes 0: the sum stands where the first lane's gradient does.
      action.adds = {slot(concat("reduced ", name, ":", lane), SlotKind::reduced_gradient, 0)};
      reduced_parts_.push_back(action.adds[0]);
      program.actions.push_back(std::move(action));
    }
  }
  const std::vector<SlotId>& reduced_parts() const { return reduced_parts_; }

  SlotId reduced(int32_t unit) {
    const GraphUnit& g = graph_.units[static_cast<size_t>(unit)];
    return slot("reduced " + g.name, SlotKind::reduced_gradient, g.shard_bytes);
  }

  SlotId pushed(int32_t table) {
    return slot("pushed " + graph_.tables[static_cast<size_t>(table)], SlotKind::reduced_gradient,
                0);
  }

  // Sums what the lanes of this wave have of a unit, over the ranks.
  void reduce(int32_t unit, int32_t lanes, int32_t wave) {
    const GraphUnit& g = graph_.units[static_cast<size_t>(unit)];
    Action action{.kind = ActionKind::reduce,
                  .block = unit,
                  .lane = kCommunicationLane,
                  .bytes = g.whole_bytes};
    for (int32_t lane = 0; lane < lanes; ++lane) action.reads.push_back(gradient(unit, lane, wave));
    action.adds = {reduced(unit)};
    program.actions.push_back(std::move(action));
  }

  StepProgram finish() {
    link(program);
    return std::move(program);
  }

  StepProgram program;

 private:
  std::vector<SlotId> inputs(int32_t b, int32_t m) const {
    std::vector<SlotId> slots;
    for (const std::string& input : block(b).inputs) slots.push_back(known_slot(at(input, m)));
    for (int32_t table : block(b).tables)
      slots.push_back(known_slot(rows(graph_.tables[static_cast<size_t>(table)], m)));
    return slots;
  }

  void add_weights(int32_t b, std::vector<SlotId>& reads) const {
    for (int32_t unit : block(b).units)
      if (const auto held = gathered_.find(unit); held != gathered_.end())
        reads.push_back(held->second);
  }

  const Graph& graph_;
  const TrainingPlan& plan_;
  std::map<std::string, SlotId> slots_;
  std::map<std::string, int> consumers_;
  std::map<int32_t, SlotId> gathered_;  // unit -> its present weights
  std::vector<SlotId> reduced_parts_;
  int32_t gathers_ = 0;
};

// The unit's gradient is whole once the first block that uses it has run backward.
int32_t first_user(const Graph& graph, int32_t unit) {
  for (size_t b = 0; b < graph.blocks.size(); ++b)
    if (std::ranges::count(graph.blocks[b].units, unit) > 0) return static_cast<int32_t>(b);
  TRIREME_ASSERT(false, "no block uses unit ", graph.units[static_cast<size_t>(unit)].name);
  return -1;
}

// Agrees on the norm; then all lanes step the optimizer on their parts.
void close_step(Writer& writer, const Graph& graph, const TrainingPlan& plan,
                bool reduced_by_unit) {
  auto& program = writer.program;
  std::vector<SlotId> reduced = writer.reduced_parts();
  const auto units = static_cast<int32_t>(graph.units.size());
  if (reduced_by_unit)
    for (int32_t unit = 0; unit < units; ++unit) reduced.push_back(writer.reduced(unit));
  if (units > 0) {
    const SlotId norm = writer.slot("norm", SlotKind::scalar, 0);
    program.actions.push_back({.kind = ActionKind::norm, .reads = reduced, .writes = {norm}});
    reduced.push_back(norm);
    if (!reduced_by_unit)
      for (int32_t unit = 0; unit < units; ++unit) reduced.push_back(writer.gradient(unit, 0, -1));
    for (int32_t lane = 0; lane < plan.lanes; ++lane)
      program.actions.push_back({.kind = ActionKind::update, .lane = lane, .reads = reduced});
  }
  for (int32_t table = 0; table < static_cast<int32_t>(graph.tables.size()); ++table)
    program.actions.push_back(
        {.kind = ActionKind::update, .table = table, .reads = {writer.pushed(table)}});
}

}  // namespace

StepProgram build_training(const Graph& graph, const TrainingPlan& plan) {
  Writer writer(graph, plan);
  const int32_t blocks = writer.blocks();
  const bool between_ranks = plan.sharded || plan.reduce_between_ranks;
  std::vector<int32_t> whole;  // alone: units whose gradients all lanes have made, not yet summed
  const auto reduce_whole = [&] {
    for (int32_t unit : std::exchange(whole, {})) writer.reduce_parts(unit);
  };
  for (const auto& wave : writer.waves()) {
    const bool last_wave = wave.end == writer.micros();
    // Gradients of a wave of its own, or of all waves.
    const int32_t reduced_wave = plan.sharded && plan.zero > 1 ? wave.index : -1;
    // The visits of one wave: every block forward, then every block backward. Units are gathered
    // one visit ahead.
    const auto visited = [&](int32_t visit) {
      return visit < blocks ? visit : 2 * blocks - 1 - visit;
    };
    const auto wanted = [&](int32_t visit) {
      return visit < 2 * blocks ? writer.units_of(visited(visit)) : Units{};
    };
    const auto kept_after = [&](int32_t visit) {
      Units kept = wanted(visit + 1);
      for (int32_t later = visit + 2; plan.zero < 3 && later < 2 * blocks; ++later)
        kept.merge(wanted(later));
      return kept;
    };
    if (plan.sharded) writer.gather(wanted(0));
    for (int32_t visit = 0; visit < 2 * blocks; ++visit) {
      const int32_t b = visited(visit);
      const bool last_block =
          b == blocks - 1;  // its backward follows at once: nothing to recompute
      const bool recomputed = plan.recompute == Recompute::block && !last_block;
      if (plan.sharded) writer.gather(wanted(visit + 1));
      for (int32_t m = wave.begin; m < wave.end; ++m) {
        if (visit < blocks) {
          writer.pull(b, m);
          writer.forward(b, m, reduced_wave, !recomputed);
        } else {
          if (recomputed) writer.forward(b, m, reduced_wave, true, true);
          writer.backward(b, m, reduced_wave);
          writer.push(b, m);
        }
      }
      if (!between_ranks && visit >= blocks && last_wave) {
        reduce_whole();  // one visit late, so that a lane seldom waits for the others
        for (int32_t unit : writer.units_of(b))
          if (first_user(graph, unit) == b) whole.push_back(unit);
      }
      if (!plan.sharded) continue;
      if (visit >= blocks && (plan.zero > 1 || last_wave)) {
        const int32_t lanes =
            plan.zero > 1 ? wave.end - wave.begin : std::min(plan.lanes, writer.micros());
        for (int32_t unit : writer.units_of(b))
          if (first_user(graph, unit) == b) writer.reduce(unit, lanes, reduced_wave);
      }
      if (plan.zero == 3 || last_wave) writer.release_all_but(kept_after(visit));
    }
  }
  reduce_whole();
  if (plan.reduce_between_ranks && !plan.sharded)
    for (int32_t unit = static_cast<int32_t>(graph.units.size()) - 1; unit >= 0; --unit)
      writer.reduce(unit, std::min(plan.lanes, writer.micros()), -1);
  close_step(writer, graph, plan, between_ranks);
  return writer.finish();
}

StepProgram build_forward(const Graph& graph, const TrainingPlan& plan) {
  Writer writer(graph, plan);
  for (const auto& wave : writer.waves()) {
    if (plan.sharded) writer.gather(writer.units_of(0));
    for (int32_t b = 0; b < writer.blocks(); ++b) {
      const Units next = b + 1 < writer.blocks() ? writer.units_of(b + 1) : Units{};
      if (plan.sharded) writer.gather(next);
      for (int32_t m = wave.begin; m < wave.end; ++m) {
        writer.pull(b, m);
        writer.forward(b, m, -1, false);
      }
      if (plan.sharded) writer.release_all_but(next);
    }
  }
  return writer.finish();
}

}  // namespace trireme
