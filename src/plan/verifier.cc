#include "plan/verifier.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "base/error.h"

namespace trireme {
namespace {

// before(a, b): lane order and `after` together make a run before b. Rows of bits, one a action.
class Order {
 public:
  explicit Order(const StepProgram& program)
      : words_((program.actions.size() + 63) / 64), bits_(words_ * program.actions.size()) {
    std::map<int32_t, ActionId> last_of_lane;
    for (ActionId id = 0; id < static_cast<ActionId>(program.actions.size()); ++id) {
      const Action& action = program.actions[id];
      for (ActionId other : action.after) include(id, other);
      const auto [last, first] = last_of_lane.try_emplace(action.lane, id);
      if (!first) include(id, std::exchange(last->second, id));
    }
  }

  bool before(ActionId a, ActionId b) const { return bits_[row(b) + a / 64] >> (a % 64) & 1; }

 private:
  size_t row(ActionId id) const { return words_ * static_cast<size_t>(id); }
  void include(ActionId id, ActionId earlier) {
    for (size_t w = 0; w < words_; ++w) bits_[row(id) + w] |= bits_[row(earlier) + w];
    bits_[row(id) + earlier / 64] |= uint64_t{1} << (earlier % 64);
  }

  size_t words_;
  std::vector<uint64_t> bits_;
};

struct Uses {
  std::vector<ActionId> writers, adders, readers, freers;
};

class Verifier {
 public:
  Verifier(const StepProgram& program, const Graph& graph) : program_(program), graph_(graph) {}

  std::optional<std::string> run() {
    using Rule = void (Verifier::*)();
    static constexpr Rule kRules[] = {&Verifier::names_exist,
                                      &Verifier::nothing_stands_twice,
                                      &Verifier::collect,
                                      &Verifier::slots_are_made_before_they_are_read,
                                      &Verifier::slots_end_once,
                                      &Verifier::every_block_runs,
                                      &Verifier::values_are_there,
                                      &Verifier::weights_are_there,
                                      &Verifier::everything_is_updated};
    for (Rule rule : kRules) {
      (this->*rule)();
      if (!fault_.empty()) return fault_;
    }
    return std::nullopt;
  }

 private:
  template <class... Parts>
  void fault(ActionId id, const Parts&... parts) {
    if (fault_.empty())
      fault_ = concat("action ", id, ", ", describe(program_, id), ": ", parts...);
  }
  template <class... Parts>
  void fault_of_slot(SlotId slot, const Parts&... parts) {
    if (fault_.empty()) fault_ = concat("slot ", program_.slots[slot].name, ": ", parts...);
  }

  ActionId actions() const { return static_cast<ActionId>(program_.actions.size()); }
  const Action& action(ActionId id) const { return program_.actions[static_cast<size_t>(id)]; }

  template <class F>
  void each_action(ActionKind kind, F visit) {
    for (ActionId id = 0; id < actions(); ++id)
      if (action(id).kind == kind) visit(id, action(id));
  }

  static bool within(int64_t index, size_t size) {
    return index >= 0 && index < static_cast<int64_t>(size);
  }

  void names_exist() {
    for (ActionId id = 0; id < actions(); ++id) {
      const Action& a = action(id);
      if (a.lane != kCommunicationLane && !within(a.lane, program_.lanes))
        fault(id, "there is no such lane");
      for (const auto* slots : {&a.reads, &a.writes, &a.adds, &a.frees})
        for (SlotId slot : *slots)
          if (!within(slot, program_.slots.size())) fault(id, "there is no slot ", slot);
      for (ActionId other : a.after)
        if (other < 0 || other >= id)
          fault(id, "waits for action ", other, ", which does not stand before it");
      const bool of_block = a.kind == ActionKind::forward || a.kind == ActionKind::backward;
      if (of_block && !within(a.block, graph_.blocks.size()))
        fault(id, "there is no block ", a.block);
      const bool of_table = a.kind == ActionKind::pull_rows || a.kind == ActionKind::push_rows;
      if (of_table && !within(a.table, graph_.tables.size()))
        fault(id, "there is no table ", a.table);
      if ((of_block || of_table) && !within(a.micro, program_.micro_samples.size()))
        fault(id, "there is no micro-batch ", a.micro);
    }
  }

  void nothing_stands_twice() {
    using Key = std::tuple<ActionKind, int32_t, int32_t, int32_t, int32_t, bool,
                           std::vector<SlotId>, std::vector<SlotId>, std::vector<SlotId>>;
    std::map<Key, ActionId> seen;
    for (ActionId id = 0; id < actions(); ++id) {
      const Action& a = action(id);
      const auto [at, fresh] = seen.try_emplace(
          Key{a.kind, a.block, a.table, a.micro, a.lane, a.keeps_tape, a.reads, a.writes, a.adds},
          id);
      if (!fresh) fault(id, "stands twice, first as action ", at->second);
    }
  }

  void collect() {
    uses_.resize(program_.slots.size());
    for (ActionId id = 0; id < actions(); ++id) {
      for (SlotId slot : action(id).reads) uses_[slot].readers.push_back(id);
      for (SlotId slot : action(id).writes) uses_[slot].writers.push_back(id);
      for (SlotId slot : action(id).adds) uses_[slot].adders.push_back(id);
      for (SlotId slot : action(id).frees) uses_[slot].freers.push_back(id);
    }
    order_.emplace(program_);
  }

  void slots_are_made_before_they_are_read() {
    for (SlotId slot = 0; slot < static_cast<SlotId>(uses_.size()); ++slot) {
      const Uses& use = uses_[slot];
      if (use.writers.size() > 1)
        fault(use.writers[1], "writes ", program_.slots[slot].name, " a second time");
      if (!use.writers.empty() && !use.adders.empty())
        fault(use.adders[0], "adds to ", program_.slots[slot].name,
              ", which another action writes");
      if (use.writers.empty() && use.adders.empty()) {
        if (use.readers.empty()) fault_of_slot(slot, "nothing uses it");
        else fault(use.readers[0], "reads ", program_.slots[slot].name, ", which nothing makes");
        return;
      }
      if (use.readers.empty()) fault_of_slot(slot, "is made and never read");
      for (ActionId reader : use.readers)
        for (const auto* makers : {&use.writers, &use.adders})
          for (ActionId maker : *makers)
            if (!order_->before(maker, reader))
              fault(reader, "reads ", program_.slots[slot].name, " without waiting for action ",
                    maker, ", ", describe(program_, maker));
      adders_are_ordered(slot, use);
    }
  }

  // Two unordered additions into one buffer are a race. Pushes are not: a table keeps them apart by
  // micro-batch.
  void adders_are_ordered(SlotId slot, const Uses& use) {
    for (size_t i = 1; i < use.adders.size(); ++i)
      if (action(use.adders[i]).kind != ActionKind::push_rows &&
          !order_->before(use.adders[i - 1], use.adders[i]))
        fault(use.adders[i], "adds to ", program_.slots[slot].name, " at the same time as action ",
              use.adders[i - 1]);
  }

  void slots_end_once() {
    for (SlotId slot = 0; slot < static_cast<SlotId>(uses_.size()); ++slot) {
      const Uses& use = uses_[slot];
      if (use.freers.size() != 1 || use.freers[0] != use.readers.back())
        fault_of_slot(slot, "must be freed once, by its last reader, action ", use.readers.back());
      if (program_.slots[slot].kind == SlotKind::tape && use.readers.size() != 1)
        fault(use.readers[1], "reads the graph of a forward that was read before");
    }
  }

  // Forwards that keep a tape must equal backwards, and every (block, micro) has exactly one
  // forward that writes its outputs.
  void every_block_runs() {
    const bool trains = std::ranges::any_of(
        program_.actions, [](const Action& a) { return a.kind == ActionKind::backward; });
    std::map<std::pair<int32_t, int32_t>, std::array<int, 3>>
        runs;  // forwards, of these with tape, backwards
    each_action(ActionKind::forward, [&](ActionId, const Action& a) {
      ++runs[{a.block, a.micro}][0];
      runs[{a.block, a.micro}][1] += a.keeps_tape;
    });
    each_action(ActionKind::backward,
                [&](ActionId, const Action& a) { ++runs[{a.block, a.micro}][2]; });
    for (int32_t b = 0; b < static_cast<int32_t>(graph_.blocks.size()); ++b)
      for (int32_t m = 0; m < static_cast<int32_t>(program_.micro_samples.size()); ++m) {
        const auto [forwards, taped, backwards] = runs[{b, m}];
        const bool right = trains ? backwards == 1 && taped == 1 && (forwards == 1 || forwards == 2)
                                  : forwards == 1 && taped == 0;
        if (!right && fault_.empty())
          fault_ = concat("block ", graph_.blocks[b].name, ", micro-batch ", m, ": ", forwards,
                          " forwards, ", taped, " of them keeping a graph, and ", backwards,
                          " backwards");
      }
  }

  void values_are_there() {
    for (ActionId id = 0; id < actions(); ++id) {
      const Action& a = action(id);
      if (a.kind != ActionKind::forward && a.kind != ActionKind::backward) continue;
      const GraphBlock& block = graph_.blocks[a.block];
      size_t wanted = block.inputs.size() + block.tables.size();
      if (a.kind == ActionKind::backward) wanted += block.outputs.size();
      const auto values = static_cast<size_t>(std::ranges::count_if(
          a.reads, [&](SlotId slot) { return program_.slots[slot].kind == SlotKind::value; }));
      if (values != wanted) fault(id, "reads ", values, " values, and its block has ", wanted);
    }
  }

  void weights_are_there() {
    std::map<SlotId, int32_t> unit_of;
    each_action(ActionKind::gather, [&](ActionId, const Action& a) {
      for (SlotId slot : a.writes) unit_of[slot] = a.block;
    });
    if (unit_of.empty()) return;
    for (const auto& [slot, unit] : unit_of) {
      const Uses& use = uses_[slot];
      const ActionId last = use.readers.back();
      if (action(last).kind != ActionKind::release)
        fault_of_slot(slot, "is gathered and never released");
      for (ActionId reader : use.readers)
        if (reader != last && !order_->before(reader, last))
          fault(last, "releases ", program_.slots[slot].name, " while action ", reader,
                " may still read it");
    }
    for (ActionKind kind : {ActionKind::forward, ActionKind::backward})
      each_action(kind, [&](ActionId id, const Action& a) {
        std::set<int32_t> held;
        for (SlotId slot : a.reads)
          if (const auto at = unit_of.find(slot); at != unit_of.end()) held.insert(at->second);
        for (int32_t unit : graph_.blocks[a.block].units)
          if (!held.contains(unit))
            fault(id, "runs without the weights of ", graph_.units[unit].name);
      });
  }

  void everything_is_updated() {
    for (SlotId slot = 0; slot < static_cast<SlotId>(uses_.size()); ++slot) {
      const SlotKind kind = program_.slots[slot].kind;
      if (kind != SlotKind::gradient && kind != SlotKind::reduced_gradient) continue;
      const ActionKind wanted =
          kind == SlotKind::gradient ? ActionKind::reduce : ActionKind::update;
      if (!std::ranges::any_of(uses_[slot].readers,
                               [&](ActionId id) { return action(id).kind == wanted; }))
        fault_of_slot(slot, "no ", name_of(wanted), " reads it");
    }
    if (!std::ranges::any_of(program_.slots,
                             [](const Slot& s) { return s.kind == SlotKind::scalar; }))
      return;
    std::set<int32_t> lanes;
    each_action(ActionKind::update, [&](ActionId, const Action& a) {
      if (a.table < 0) lanes.insert(a.lane);
    });
    if (static_cast<int32_t>(lanes.size()) != program_.lanes)
      fault_ = concat("of ", program_.lanes, " lanes only ", lanes.size(), " update their part");
  }

  const StepProgram& program_;
  const Graph& graph_;
  std::vector<Uses> uses_;
  std::optional<Order> order_;
  std::string fault_;
};

}  // namespace

std::optional<std::string> find_fault(const StepProgram& program, const Graph& graph) {
  return Verifier(program, graph).run();
}

void verify(const StepProgram& program, const Graph& graph) {
  if (const auto fault = find_fault(program, graph))
    throw InternalError(concat("the step program is wrong: ", *fault));
}

}  // namespace trireme
