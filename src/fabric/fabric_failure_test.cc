#include <gtest/gtest.h>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <atomic>

#include "fabric/test_fabrics.h"
#include "fabric/test_values.h"

// Bad days. Where an error must come at once, the timeout is ten minutes: a test that waits for it
// hangs for all to see.

namespace trireme {
namespace {

using std::chrono::milliseconds;
const FabricOptions kPatient = {.timeout = std::chrono::minutes(10)};

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const FabricError& error) {
    return error.what();
  }
  return "no FabricError";
}

void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" in \"" << text << "\"";
}

class FailingFabrics : public OnEveryFabric {
 protected:
  // Runs one call a rank, all different in one way; every rank must fail with the same reason,
  // which has these words.
  static void expect_disagreement(int ranks, const std::function<void(Communicator&)>& call,
                                  std::vector<std::string> words) {
    run_ranks(
        ranks,
        [&](Fabric& fabric) {
          Communicator& comm = fabric.world();
          const std::string text = text_of([&] { call(comm); });
          for (const std::string& word : words) expect_contains(text, word);
          expect_contains(text, "in group world (ranks 0, 1");
          expect_contains(text_of([&] { comm.barrier(); }), "the group is dead since");
        },
        kPatient);
  }
};

TRIREME_ON_EVERY_FABRIC(FailingFabrics);

at::Tensor floats(int64_t numel) { return at::zeros({numel}, at::kFloat); }

TEST_P(FailingFabrics, DisagreementNamesBothRanksAndWhatTheyCall) {
  expect_disagreement(
      2, [](Communicator& c) { c.rank() == 0 ? c.all_reduce_sum(floats(12)) : c.barrier(); },
      {"#0", "rank 0 calls all_reduce_sum of 12 fp32, rank 1 calls barrier"});
  expect_disagreement(
      3, [](Communicator& c) { c.all_reduce_sum(floats(c.rank() == 2 ? 5 : 6)); },
      {"rank 0 calls all_reduce_sum of 6 fp32, rank 2 calls all_reduce_sum of 5 fp32"});
  expect_disagreement(
      2, [](Communicator& c) { c.all_reduce_sum(floats(6).to(c.rank() ? at::kDouble : at::kInt)); },
      {"all_reduce_sum of 6 int32", "all_reduce_sum of 6 fp64"});
  expect_disagreement(2, [](Communicator& c) { c.broadcast(floats(3), c.rank()); },
                      {"from group rank 0", "from group rank 1"});
  expect_disagreement(2,
                      [](Communicator& c) {
                        const std::vector<int64_t> counts =
                            c.rank() ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{2, 1};
                        c.all_gather(floats(2), floats(3), counts);
                      },
                      {"ranks 0 and 1 call all_gather of 3 fp32 with different segments"});
  expect_disagreement(2,
                      [](Communicator& c) {
                        c.reduce_scatter_sum(floats(4).to(at::kBFloat16),
                                             floats(2).to(c.rank() ? at::kBFloat16 : at::kFloat));
                      },
                      {"of 4 bf16 into fp32", "rank 1 calls reduce_scatter_sum of 4 bf16"});
  expect_disagreement(2,
                      [](Communicator& c) {
                        if (c.rank() == 0) c.all_to_all(floats(5), floats(2), {2, 3}, {2, 0});
                        else c.all_to_all(floats(4), floats(6), {0, 4}, {2, 4});
                      },
                      {"rank 0 sends 3 elements to rank 1, which expects 2"});
}

TEST_P(FailingFabrics, DisagreementOfASendAndItsReceive) {
  for (bool receiver_first : {false, true})
    run_ranks(
        2,
        [&](Fabric& fabric) {
          Communicator& comm = fabric.world();
          const bool first = (comm.rank() == 1) == receiver_first;
          Communicator& order = fabric.group(Mesh({.replica = 2}), {Axis::replica});
          Pending pending;
          std::string text;
          const auto call = [&] {
            text = text_of([&] {
              pending = comm.rank() == 0 ? comm.start(op::send(floats(4), 1))
                                         : comm.start(op::recv(floats(3), 0));
            });
          };
          if (first) call();
          order.barrier();
          if (!first) call();
          // Whoever finds it out, in its call or later, both learn it.
          if (text == "no FabricError") text = text_of([&] { pending.wait(); });
          expect_contains(text, "rank 0 calls send of 4 fp32, rank 1 calls recv of 3 fp32");
        },
        kPatient);
}

TEST_P(FailingFabrics, WrongUseIsRefusedBeforeAnythingMoves) {
  const auto refused = [](const std::function<void(Communicator&)>& call,
                          const std::string& words) {
    try {
      run_ranks(2, [&](Fabric& fabric) { call(fabric.world()); }, kPatient);
      ADD_FAILURE() << "accepted: " << words;
    } catch (const InputError& error) {
      expect_contains(error.what(), words);
    }
  };
  refused([](Communicator& c) { c.all_reduce_sum(at::zeros({4, 4}).t()); }, "not contiguous");
  refused([](Communicator& c) { c.all_reduce_sum(at::Tensor()); }, "no tensor");
  refused([](Communicator& c) { c.all_reduce_sum(at::zeros({1}, at::kByte)); },
          "uint8 cannot be reduced");
  refused([](Communicator& c) { c.all_reduce_sum(at::zeros({1}, at::kComplexFloat)); },
          "ComplexFloat");
  refused([](Communicator& c) { c.all_gather(floats(2), floats(6)); },
          "pieces of 3 ranks in a group of 2");
  refused([](Communicator& c) { c.all_gather(floats(2), floats(5)); }, "do not make up 5");
  refused([](Communicator& c) { c.all_gather(floats(2), floats(5), {3, 2}); },
          "group rank 0 have 3");
  refused([](Communicator& c) { c.all_gather(floats(2), floats(4).to(at::kDouble)); },
          "expected one type");
  refused([](Communicator& c) { c.reduce_scatter_sum(floats(4).to(at::kDouble), floats(2)); },
          "expected one type");
  refused([](Communicator& c) { c.broadcast(floats(2), 2); }, "group rank 2 in a group of 2");
  refused([](Communicator& c) { c.send(floats(2), c.rank()); }, "with itself");
  refused([](Communicator& c) { c.all_to_all(floats(2), floats(2), {2}, {2}); },
          "ranks in a group of 2");
  refused([](Communicator& c) { c.all_to_all(floats(2), floats(2), {1, 2}, {1, 1}); },
          "send counts add up to 3");
  refused(
      [](Communicator& c) {
        const at::Tensor whole = floats(4);
        c.all_gather(whole.narrow(0, 1, 2), whole);
      },
      "not where the rank's segments are");
}

// The missing rank comes when the others have given up. Who else was late is not for this test to
// say.
TEST_P(FailingFabrics, TimeoutNamesTheMissingAndKillsTheGroupOnly) {
  for (bool started : {false, true}) {
    std::atomic<int> gave_up = 0;
    run_ranks(
        3,
        [&](Fabric& fabric) {
          Communicator& comm = fabric.world();
          Communicator& other = fabric.group(Mesh({.shard = 3}), {Axis::shard});
          if (comm.rank() == 2) {
            while (gave_up < 2) gave_up.wait(gave_up.load());
          } else {
            try {
              Operation operation = op::all_reduce_sum(floats(4)).within(milliseconds(50));
              if (started) comm.start(std::move(operation)).wait();
              else comm.run(std::move(operation));
              ADD_FAILURE() << "no error";
            } catch (const FabricError& error) {
              EXPECT_EQ(error.group(), "world");
              EXPECT_EQ(error.operation(), "all_reduce_sum");
              EXPECT_EQ(error.sequence(), 0u);
              EXPECT_EQ(std::ranges::count(error.missing(), 2), 1);
              expect_contains(error.what(),
                              "all_reduce_sum #0 in group world (ranks 0, 1, 2): rank");
              expect_contains(error.what(), "2 did not arrive within 0.05 s");
            }
            ++gave_up;
            gave_up.notify_all();
          }
          expect_contains(text_of([&] { comm.all_reduce_sum(floats(4)); }), "did not arrive");
          expect_contains(text_of([&] { comm.broadcast(floats(4), 0); }), "broadcast #");
          expect_contains(text_of([&] { comm.broadcast(floats(4), 0); }),
                          "the group is dead since all_reduce_sum #0");
          expect_contains(
              text_of([&] { comm.start(op::send(floats(4), (comm.rank() + 1) % 3)).wait(); }),
              "is dead");
          other.barrier();
        },
        kPatient);
  }
}

TEST_P(FailingFabrics, TimeoutOfASendAndAReceiveNamesThePartner) {
  for (bool sends : {false, true})
    run_ranks(
        2,
        [&](Fabric& fabric) {
          Communicator& comm = fabric.world();
          if (comm.rank() == 0) {
            Operation operation = sends ? op::send(floats(4), 1) : op::recv(floats(4), 1);
            const std::string text =
                text_of([&] { comm.run(std::move(operation).within(milliseconds(20))); });
            expect_contains(text, concat(sends ? "send" : "recv",
                                         " #0 in group world (ranks 0, 1): rank 1 did not ",
                                         sends ? "receive" : "send", " within 0.02 s"));
          }
          fabric.group(Mesh({.replica = 2}), {Axis::replica}).barrier();
        },
        kPatient);
}

// The first rank to fail ends everybody's waiting, whatever they wait for, and its own error is
// what the caller sees.
TEST_P(FailingFabrics, ARankThatThrowsEndsTheOthersWithItsMessage) {
  const std::vector<std::pair<const char*, std::function<void(Communicator&)>>> waits = {
      {"all_reduce_sum", [](Communicator& c) { c.all_reduce_sum(floats(4)); }},
      {"all_gather",
       [](Communicator& c) { c.start(op::all_gather(floats(4), floats(16))).wait(); }},
      {"recv", [](Communicator& c) { c.recv(floats(4), 2); }},
      {"send", [](Communicator& c) { c.start(op::send(floats(4), 2)).wait(); }},
      {"barrier",
       [](Communicator& c) {
         while (true) c.barrier();
       }},
  };
  for (const auto& [operation, wait] : waits) {
    SCOPED_TRACE(operation);
    std::atomic<int> ended = 0;
    try {
      run_ranks(
          4,
          [&](Fabric& fabric) {
            Communicator& comm = fabric.world();
            comm.barrier();
            if (comm.rank() == 2) throw CheckError("boom");
            const std::string text = text_of([&] { wait(comm); });
            expect_contains(text, concat(operation, " #"));
            expect_contains(text, "in group world (ranks 0, 1, 2, 3): rank 2 failed: boom");
            // A group that is made afterwards is dead too.
            expect_contains(
                text_of([&] { fabric.group(Mesh({.shard = 4}), {Axis::shard}).barrier(); }),
                "boom");
            ++ended;
          },
          kPatient);
      ADD_FAILURE() << "no error";
    } catch (const CheckError& error) {
      EXPECT_STREQ(error.what(), "boom");
    }
    EXPECT_EQ(ended, 3);
  }
}

TEST_P(FailingFabrics, ARankThatThrowsMayThrowAnythingAndLeaveOperationsBehind) {
  EXPECT_THROW(run_ranks(
                   2,
                   [](Fabric& fabric) {
                     if (fabric.rank() == 0) {
                       (void)fabric.world().start(op::all_reduce_sum(floats(1000)));
                       (void)fabric.world().start(op::recv(floats(1000), 1));
                       throw 42;
                     }
                     fabric.world().recv(floats(3), 0);
                   },
                   kPatient),
               int);
}

TEST_P(FailingFabrics, ARankThatEndsIsMissedAtOnce) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    try {
      run_ranks(
          3,
          [&](Fabric& fabric) {
            Communicator& comm = fabric.world();
            comm.barrier();
            if (comm.rank() == 1) return;  // before or after the others wait, as it comes
            comm.all_reduce_sum(floats(4));
          },
          kPatient);
      ADD_FAILURE() << "no error";
    } catch (const FabricError& error) {
      expect_contains(
          error.what(),
          "all_reduce_sum #1 in group world (ranks 0, 1, 2): rank 1 has ended without it");
      EXPECT_EQ(error.missing(), std::vector<int>{1});
    }
  }
  for (bool sends : {false, true})
    expect_contains(text_of([&] {
                      run_ranks(
                          2,
                          [&](Fabric& fabric) {
                            Communicator& comm = fabric.world();
                            comm.barrier();
                            if (comm.rank() == 1) return;
                            sends ? comm.send(floats(4), 1) : comm.recv(floats(4), 1);
                          },
                          kPatient);
                    }),
                    "rank 1 has ended without it");
}

// What was sent before a rank ended is still there to be received.
TEST_P(FailingFabrics, ARankThatEndsFinishesWhatItStarted) {
  run_ranks(
      2,
      [](Fabric& fabric) {
        Communicator& comm = fabric.world();
        if (comm.rank() == 1) {
          (void)comm.start(op::send(exact_values(1, 5, at::kFloat), 0));
          return;
        }
        const at::Tensor x = floats(5);
        comm.recv(x, 1);
        EXPECT_TRUE(at::equal(x, exact_values(1, 5, at::kFloat)));
      },
      kPatient);
}

}  // namespace
}  // namespace trireme
