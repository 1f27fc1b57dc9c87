#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "plan/builder.h"
#include "plan/verifier.h"

namespace trireme {
namespace {

// A decoder in small: embedding, layers, a head that reads the embedding's weights too. With a
// table of rows that the second block reads, and a value that two blocks read.
Graph decoder(bool with_table) {
  Graph graph;
  graph.units = {
      {"embedding", 1000, 500}, {"layer 0", 400, 200}, {"layer 1", 400, 200}, {"head", 40, 20}};
  graph.blocks = {{"embedding", {}, {"x0"}, {0}, {}, {0, 64, 0}},
                  {"layer 0", {"x0"}, {"x1"}, {1}, {}, {2000, 64, 640}},
                  {"layer 1", {"x1", "x0"}, {"x2"}, {2}, {}, {2000, 64, 640}},
                  {"head", {"x2"}, {}, {3, 0}, {}, {5000, 0, 100}, true}};
  if (with_table) {
    graph.tables = {"users"};
    graph.blocks[1].tables = {0};
  }
  return graph;
}

struct Case {
  int32_t micros, lanes;
  bool sharded, between_ranks;
  Recompute recompute;
  bool with_table;
  int32_t zero = 3;
};

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int32_t micros : {1, 2, 5})
    for (int32_t lanes : {1, 2, 3})
      for (int sharing : {0, 1, 2, 3, 4})  // 2 … 4: sharded, with ZeRO-3, -2, -1
        for (Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block})
          for (bool table : {false, true})
            cases.push_back({micros, lanes, sharing >= 2, sharing > 0, recompute, table,
                             sharing >= 2 ? 5 - sharing : 3});
  return cases;
}

StepProgram build(const Case& c, const Graph& graph) {
  TrainingPlan plan{.micro_samples = std::vector<int64_t>(static_cast<size_t>(c.micros), 4),
                    .lanes = c.lanes,
                    .sharded = c.sharded,
                    .zero = c.zero,
                    .reduce_between_ranks = c.between_ranks,
                    .recompute = c.recompute};
  return build_training(graph, plan);
}

TEST(Verifier, AcceptsTheRealPrograms) {
  for (const Case& c : all_cases()) {
    const Graph graph = decoder(c.with_table);
    const auto fault = find_fault(build(c, graph), graph);
    EXPECT_FALSE(fault) << *fault;
    const auto forward =
        build_forward(graph, {.micro_samples = {4, 4, 4}, .lanes = c.lanes, .sharded = c.sharded});
    const auto forward_fault = find_fault(forward, graph);
    EXPECT_FALSE(forward_fault) << *forward_fault;
  }
}

// The program without one action, with one doubled, or with one moved to another place; `after`
// keeps naming the same actions.
StepProgram rearranged(const StepProgram& program, const std::vector<ActionId>& order) {
  StepProgram changed = program;
  std::vector<ActionId> place(program.actions.size(), -1);
  for (size_t i = 0; i < order.size(); ++i)
    if (place[order[i]] < 0) place[order[i]] = static_cast<ActionId>(i);
  changed.actions.clear();
  for (ActionId old : order) {
    Action action = program.actions[old];
    std::vector<ActionId> after;
    for (ActionId other : action.after)
      if (place[other] >= 0) after.push_back(place[other]);
    action.after = after;
    changed.actions.push_back(action);
  }
  return changed;
}

std::vector<ActionId> identity(const StepProgram& program) {
  std::vector<ActionId> order(program.actions.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<ActionId>(i);
  return order;
}

TEST(Verifier, RejectsEveryProgramWithOneActionRemovedOrDoubled) {
  int rejected = 0;
  for (const Case& c : all_cases()) {
    const Graph graph = decoder(c.with_table);
    const StepProgram program = build(c, graph);
    for (size_t at = 0; at < program.actions.size(); ++at) {
      auto without = identity(program);
      without.erase(without.begin() + static_cast<ptrdiff_t>(at));
      EXPECT_TRUE(find_fault(rearranged(program, without), graph))
          << "without " << describe(program, static_cast<int>(at));
      auto doubled = identity(program);
      doubled.insert(doubled.begin() + static_cast<ptrdiff_t>(at), doubled[at]);
      EXPECT_TRUE(find_fault(rearranged(program, doubled), graph))
          << "twice " << describe(program, static_cast<int>(at));
      rejected += 2;
    }
  }
  EXPECT_GT(rejected, 1000);
}

// Moving an action past one that it depends on, or that depends on it, must be found. The
// dependency is read off the slots here, without the verifier's order.
bool depends(const Action& later, const Action& earlier) {
  const auto made = [&](SlotId slot) {
    return std::ranges::count(earlier.writes, slot) + std::ranges::count(earlier.adds, slot) > 0;
  };
  if (std::ranges::any_of(later.reads, made)) return true;
  const auto read = [&](SlotId slot) { return std::ranges::count(earlier.reads, slot) > 0; };
  return later.kind == ActionKind::release && std::ranges::any_of(later.reads, read);
}

TEST(Verifier, RejectsAnActionMovedAcrossItsDependency) {
  std::mt19937 random(20261130);
  int moved = 0;
  for (const Case& c : all_cases()) {
    const Graph graph = decoder(c.with_table);
    const StepProgram program = build(c, graph);
    const auto n = static_cast<int>(program.actions.size());
    for (int attempt = 0; attempt < 60; ++attempt) {
      const int from = static_cast<int>(random() % static_cast<unsigned>(n));
      const int to = static_cast<int>(random() % static_cast<unsigned>(n));
      bool crosses = false;
      for (int i = std::min(from, to); i <= std::max(from, to) && !crosses; ++i)
        if (i != from)
          crosses = to < from ? depends(program.actions[from], program.actions[i])
                              : depends(program.actions[i], program.actions[from]);
      if (!crosses) continue;
      auto order = identity(program);
      order.erase(order.begin() + from);
      order.insert(order.begin() + to, from);
      ++moved;
      EXPECT_TRUE(find_fault(rearranged(program, order), graph))
          << describe(program, from) << " moved to " << to << "\n"
          << to_text(program);
    }
  }
  EXPECT_GT(moved, 500);
}

TEST(Verifier, NamesTheFault) {
  const Graph graph = decoder(false);
  StepProgram program = build({1, 1, false, false, Recompute::none, false}, graph);
  program.actions[1].reads.clear();
  const auto fault = find_fault(program, graph);
  ASSERT_TRUE(fault);
  EXPECT_THROW(verify(program, graph), InternalError);
}

TEST(Builder, AtMostTwoUnitsAreGatheredBesideTheTiedOne) {
  const Graph graph = decoder(false);
  const StepProgram program = build({2, 2, true, true, Recompute::block, false}, graph);
  int alive = 0, most = 0;
  for (const Action& action : program.actions) {
    if (action.kind == ActionKind::gather) most = std::max(most, ++alive);
    if (action.kind == ActionKind::release) --alive;
  }
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(most, 3);  // layer, head and the embedding that the head shares
}

// 5 micro-batches on 2 lanes are 3 waves: of 4 units, the embedding serves the head too.
TEST(Builder, ZeroStagesTradeMemoryForMovedBytes) {
  const Graph graph = decoder(false);
  const auto units = static_cast<int>(graph.units.size());
  struct {
    int gathers = 0, reduces = 0;
    int64_t peak = 0;
  } of[4];
  for (int32_t zero : {1, 2, 3}) {
    const StepProgram program = build({5, 2, true, true, Recompute::none, false, zero}, graph);
    for (const Action& action : program.actions) {
      of[zero].gathers += action.kind == ActionKind::gather;
      of[zero].reduces += action.kind == ActionKind::reduce;
    }
    of[zero].peak = peak_of(program).bytes;
  }
  EXPECT_EQ(of[1].gathers, units);
  EXPECT_EQ(of[2].gathers, units);
  EXPECT_GT(of[3].gathers, 3 * units);
  EXPECT_EQ(of[1].reduces, units);
  EXPECT_EQ(of[2].reduces, 3 * units);
  EXPECT_EQ(of[3].reduces, 3 * units);
  EXPECT_GT(of[1].peak, of[2].peak);
  EXPECT_GT(of[2].peak, of[3].peak);
}

// Recomputation trades tapes for a second forward: its peak is lower, its FLOPs higher.
TEST(Builder, RecomputationLowersThePeak) {
  Graph graph = decoder(false);
  for (auto& block : graph.blocks) block.cost.tape_bytes = 100'000;
  const StepProgram kept = build({2, 1, false, false, Recompute::none, false}, graph);
  const StepProgram again = build({2, 1, false, false, Recompute::block, false}, graph);
  EXPECT_LT(peak_of(again).bytes, peak_of(kept).bytes);
  EXPECT_GT(flops_of(again), flops_of(kept));
  // 4 blocks' forward and backward of 2 micro-batches of 4 samples; the recomputed blocks run
  // forward once more.
  EXPECT_EQ(flops_of(kept), 3.0 * 9000 * 8);
  EXPECT_EQ(flops_of(again), 3.0 * 9000 * 8 + 4000.0 * 8);
}

}  // namespace
}  // namespace trireme
