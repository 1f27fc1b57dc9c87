#include <gtest/gtest.h>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>

#include <atomic>
#include <cstring>
#include <numeric>
#include <random>

#include "fabric/test_fabrics.h"
#include "fabric/test_values.h"
#include "layout/placement.h"

namespace trireme {
namespace {

class OnFabrics : public OnEveryFabric {
 protected:
  // Runs `body` for every number of ranks, size and type.
  static void for_all_cases(
      const std::function<void(Communicator&, int64_t, at::ScalarType)>& body) {
    for (int ranks : kRankCounts)
      run_ranks(ranks, [&](Fabric& fabric) {
        for (at::ScalarType type : kTypes)
          for (int64_t numel : kNumels) {
            SCOPED_TRACE(concat(ranks, " ranks, ", numel, " of ", at::toString(type)));
            body(fabric.world(), numel, type);
          }
      });
  }
};

TRIREME_ON_EVERY_FABRIC(OnFabrics);

TEST_P(OnFabrics, AllReduceAddsEveryRankOnce) {
  for_all_cases([](Communicator& comm, int64_t numel, at::ScalarType type) {
    const at::Tensor x = exact_values(comm.rank(), numel, type);
    comm.all_reduce_sum(x);
    EXPECT_TRUE(at::equal(x, exact_sum(comm.size(), numel, type)));
  });
}

// Whoever arrives first, the sum is made in rank order, and all ranks get the same bits.
TEST_P(OnFabrics, AllReduceHasTheBitsOfASumInRankOrder) {
  for_all_cases([](Communicator& comm, int64_t numel, at::ScalarType type) {
    std::vector<at::Tensor> of_all;
    for (int rank = 0; rank < comm.size(); ++rank)
      of_all.push_back(rough_values(rank, numel, type));
    const at::Tensor x = of_all[static_cast<size_t>(comm.rank())].clone();
    comm.all_reduce_sum(x);
    EXPECT_TRUE(at::equal(x, naive_sum(of_all, type)));
  });
}

TEST_P(OnFabrics, AllReduceMaxTakesTheLargestOfAllRanks) {
  for_all_cases([](Communicator& comm, int64_t numel, at::ScalarType type) {
    // Place i is largest on rank i % size.
    const at::Tensor owner = at::arange(numel, at::kLong).remainder(comm.size());
    const at::Tensor x =
        at::where(owner.eq(comm.rank()), owner.add(100), owner.sub(50 + comm.rank())).to(type);
    comm.all_reduce_max(x);
    EXPECT_TRUE(at::equal(x, owner.add(100).to(type)));
  });
}

TEST_P(OnFabrics, AllReduceTakesAFewDoublesInPlace) {
  run_ranks(3, [](Fabric& fabric) {
    std::array<double, 2> sums = {fabric.rank() + 1.0, 0.5};
    fabric.world().all_reduce_sum(sums);
    EXPECT_EQ(sums, (std::array<double, 2>{6.0, 1.5}));
    std::array<double, 1> largest = {-1.0 - fabric.rank()};
    fabric.world().all_reduce_max(largest);
    EXPECT_EQ(largest[0], -1.0);
  });
}

TEST_P(OnFabrics, AllGatherPutsEqualPiecesInRankOrder) {
  for_all_cases([](Communicator& comm, int64_t numel, at::ScalarType type) {
    const at::Tensor whole = at::zeros({comm.size() * numel}, type);
    comm.all_gather(exact_values(comm.rank(), numel, type), whole);
    for (int rank = 0; rank < comm.size(); ++rank)
      EXPECT_TRUE(at::equal(whole.narrow(0, rank * numel, numel), exact_values(rank, numel, type)))
          << rank;
  });
}

// Near-equal pieces with some empty, and the same for the reduction.
TEST_P(OnFabrics, AllGatherAndReduceScatterCutRaggedly) {
  for_all_cases([](Communicator& comm, int64_t numel, at::ScalarType type) {
    std::vector<int64_t> counts;
    for (int rank = 0; rank < comm.size(); ++rank)
      counts.push_back(even_piece(numel, comm.size(), comm.size() - 1 - rank).size());
    const auto me = static_cast<size_t>(comm.rank());
    const int64_t begin = std::accumulate(counts.begin(), counts.begin() + comm.rank(), int64_t{0});
    const at::Tensor sum = exact_sum(comm.size(), numel, type);

    const at::Tensor piece = at::zeros({counts[me]}, type);
    comm.reduce_scatter_sum(exact_values(comm.rank(), numel, type), piece, counts);
    EXPECT_TRUE(at::equal(piece, sum.narrow(0, begin, counts[me])));
    const at::Tensor whole = at::zeros({numel}, type);
    comm.all_gather(piece, whole, counts);
    EXPECT_TRUE(at::equal(whole, sum));
  });
}

TEST_P(OnFabrics, ReduceScatterCutsEquallyWithoutCounts) {
  run_ranks(3, [](Fabric& fabric) {
    const at::Tensor piece = at::zeros({4}, at::kFloat);
    fabric.world().reduce_scatter_sum(exact_values(fabric.rank(), 12, at::kFloat), piece);
    EXPECT_TRUE(at::equal(piece, exact_sum(3, 12, at::kFloat).narrow(0, 4 * fabric.rank(), 4)));
  });
}

// --- Segments ---

// A buffer of tensors, each cut raggedly over the ranks, with padding that nobody holds after some
// of them.
SegmentMap random_segments(int ranks, std::mt19937& random) {
  std::vector<std::vector<Segment>> by_rank(static_cast<size_t>(ranks));
  int64_t offset = 0;
  for (int tensor = 0; tensor < 6; ++tensor) {
    const auto numel = static_cast<int64_t>(random() % 700);
    for (int rank = 0; rank < ranks; ++rank) {
      const Range piece = even_piece(numel, ranks, rank);
      by_rank[static_cast<size_t>(rank)].push_back({offset + piece.begin, piece.size()});
    }
    offset += numel + static_cast<int64_t>(random() % 3);
  }
  return SegmentMap(offset, std::move(by_rank));
}

at::Tensor take(const at::Tensor& whole, const std::vector<Segment>& segments) {
  std::vector<at::Tensor> pieces = {at::empty({0}, whole.options())};
  for (const Segment& segment : segments)
    pieces.push_back(whole.narrow(0, segment.offset, segment.numel));
  return at::cat(pieces);
}

void put(const at::Tensor& whole, const std::vector<Segment>& segments, const at::Tensor& shard) {
  int64_t from = 0;
  for (const Segment& segment : segments) {
    whole.narrow(0, segment.offset, segment.numel).copy_(shard.narrow(0, from, segment.numel));
    from += segment.numel;
  }
}

TEST_P(OnFabrics, SegmentsGatherFillsThemAndLeavesPaddingAlone) {
  for (int ranks : kRankCounts)
    for (uint32_t seed = 0; seed < 5; ++seed)
      run_ranks(ranks, [&](Fabric& fabric) {
        std::mt19937 random(seed);
        const SegmentMap segments = random_segments(ranks, random);
        const at::Tensor expected = at::full({segments.whole_numel()}, -1, at::kFloat);
        const at::Tensor whole = expected.clone();
        for (int rank = 0; rank < ranks; ++rank)
          put(expected, segments.of(rank), rough_values(rank, segments.numel_of(rank), at::kFloat));
        const at::Tensor shard =
            rough_values(fabric.rank(), segments.numel_of(fabric.rank()), at::kFloat);
        fabric.world().all_gather_segments(shard, whole, segments);
        EXPECT_TRUE(at::equal(whole, expected)) << ranks << " ranks, seed " << seed;
      });
}

TEST_P(OnFabrics, SegmentsReduceScatterSumsThemInRankOrder) {
  for (int ranks : kRankCounts)
    for (auto [type, out] :
         {std::pair(at::kFloat, at::kFloat), std::pair(at::kDouble, at::kDouble),
          std::pair(at::kBFloat16, at::kBFloat16), std::pair(at::kBFloat16, at::kFloat)})
      for (bool accumulate : {false, true})
        run_ranks(ranks, [&](Fabric& fabric) {
          std::mt19937 random(3);
          const SegmentMap segments = random_segments(ranks, random);
          std::vector<at::Tensor> wholes;
          for (int rank = 0; rank < ranks; ++rank)
            wholes.push_back(rough_values(rank, segments.whole_numel(), type));
          const auto& mine = segments.of(fabric.rank());
          at::Tensor expected = take(naive_sum(wholes, out), mine);
          const at::Tensor shard =
              rough_values(50 + fabric.rank(), segments.numel_of(fabric.rank()), out);
          if (accumulate) {
            const at::ScalarType wide = out == at::kDouble ? at::kDouble : at::kFloat;
            expected = (shard.to(wide) + take(naive_sum(wholes, wide), mine)).to(out);
          }
          fabric.world().reduce_scatter_segments(wholes[static_cast<size_t>(fabric.rank())], shard,
                                                 segments, accumulate);
          EXPECT_TRUE(at::equal(shard, expected)) << ranks << " ranks, " << type << " into " << out;
        });
}

// The shard may be the rank's own place in the whole buffer: a gather and a reduction in place.
TEST_P(OnFabrics, SegmentsShardsMayLieWithinTheWhole) {
  run_ranks(3, [](Fabric& fabric) {
    const SegmentMap segments = SegmentMap::consecutive({2, 0, 5});
    const auto& mine = segments.of(fabric.rank())[0];
    const at::Tensor whole = exact_values(fabric.rank(), 7, at::kFloat);
    const at::Tensor shard = whole.narrow(0, mine.offset, mine.numel);
    fabric.world().reduce_scatter_segments(whole, shard, segments);
    fabric.world().all_gather_segments(shard, whole, segments);
    EXPECT_TRUE(at::equal(whole, exact_sum(3, 7, at::kFloat)));
  });
}

TEST_P(OnFabrics, SegmentsRefuseOverlapsAndOverruns) {
  EXPECT_THROW(SegmentMap(10, {{{0, 4}}, {{3, 2}}}), InputError);
  EXPECT_THROW(SegmentMap(10, {{{8, 3}}}), InputError);
  EXPECT_THROW(SegmentMap(10, {{{-1, 3}}}), InputError);
  EXPECT_THROW(SegmentMap(10, {{{INT64_MAX, 1}}}), InputError);
  EXPECT_EQ(SegmentMap(10, {{{5, 2}, {0, 3}}, {{3, 2}}}).numel_of(0),
            5);  // any order; [7, 10) is padding
}

// --- All to all, broadcast, send and receive, barrier ---

TEST_P(OnFabrics, AllToAllMovesUnevenAndEmptyParts) {
  for_all_cases([](Communicator& comm, int64_t numel, at::ScalarType type) {
    // Rank a sends (a + 2 b) % 3 * numel elements to rank b: none to some. Their values name a and
    // b.
    const auto count = [&](int from, int to) { return (from + 2 * to) % 3 * numel; };
    const auto part = [&](int from, int to) {
      return exact_values(from, count(from, to), at::kLong).add(32 * to).to(type);
    };
    std::vector<at::Tensor> out = {at::empty({0}, type)}, in = {at::empty({0}, type)};
    std::vector<int64_t> send_counts, recv_counts;
    for (int peer = 0; peer < comm.size(); ++peer) {
      out.push_back(part(comm.rank(), peer));
      in.push_back(part(peer, comm.rank()));
      send_counts.push_back(count(comm.rank(), peer));
      recv_counts.push_back(count(peer, comm.rank()));
    }
    const at::Tensor expected = at::cat(in), result = at::zeros_like(expected);
    comm.all_to_all(at::cat(out), result, send_counts, recv_counts);
    EXPECT_TRUE(at::equal(result, expected));
  });
}

TEST_P(OnFabrics, BroadcastGivesEveryRankTheRootsValues) {
  for_all_cases([](Communicator& comm, int64_t numel, at::ScalarType type) {
    for (int root = 0; root < comm.size(); ++root) {
      const at::Tensor x = exact_values(comm.rank(), numel, type);
      comm.broadcast(x, root);
      EXPECT_TRUE(at::equal(x, exact_values(root, numel, type)));
    }
  });
}

TEST_P(OnFabrics, BroadcastMovesTypesThatCannotBeSummed) {
  run_ranks(2, [](Fabric& fabric) {
    const at::Tensor flags = at::full({3}, fabric.rank() == 1, at::kBool);
    fabric.world().broadcast(flags, 1);
    EXPECT_TRUE(flags.all().item<bool>());
    EXPECT_THROW(fabric.world().all_reduce_sum(flags), InputError);
  });
}

// All ranks send first and receive then, three messages deep: no send waits for another operation.
TEST_P(OnFabrics, SendReceivePassesRoundARingInOrder) {
  for (int ranks : {2, 3, 4, 7})
    run_ranks(ranks, [&](Fabric& fabric) {
      Communicator& comm = fabric.world();
      const int next = (comm.rank() + 1) % ranks, previous = (comm.rank() + ranks - 1) % ranks;
      for (int64_t numel : kNumels) {
        std::vector<Pending> sends;
        for (int message = 0; message < 3; ++message)
          sends.push_back(
              comm.start(op::send(exact_values(comm.rank() + message, numel, at::kFloat), next)));
        for (int message = 0; message < 3; ++message) {
          const at::Tensor x = at::zeros({numel}, at::kFloat);
          comm.recv(x, previous);
          EXPECT_TRUE(at::equal(x, exact_values(previous + message, numel, at::kFloat)));
        }
        for (const Pending& send : sends) send.wait();
      }
    });
}

TEST_P(OnFabrics, SendReceiveRunsBesideCollectives) {
  run_ranks(2, [](Fabric& fabric) {
    Communicator& comm = fabric.world();
    const at::Tensor there = exact_values(comm.rank(), 9, at::kDouble),
                     here = at::zeros({9}, at::kDouble);
    const Pending receive = comm.start(op::recv(here, 1 - comm.rank()));
    const at::Tensor x = exact_values(comm.rank(), 5, at::kFloat);
    comm.all_reduce_sum(x);  // while the receive is open
    EXPECT_TRUE(at::equal(x, exact_sum(2, 5, at::kFloat)));
    comm.send(there, 1 - comm.rank());
    receive.wait();
    EXPECT_TRUE(at::equal(here, exact_values(1 - comm.rank(), 9, at::kDouble)));
  });
}

TEST_P(OnFabrics, BarrierLetsNobodyThroughBeforeAllHaveCome) {
  for (int ranks : kRankCounts) {
    std::atomic<int> arrived = 0;
    run_ranks(ranks, [&](Fabric& fabric) {
      for (int round = 1; round <= 100; ++round) {
        ++arrived;
        fabric.world().barrier();
        EXPECT_GE(arrived.load(), round * ranks);
        fabric.world().barrier();
        EXPECT_EQ(arrived.load(), round * ranks);
        fabric.world().barrier();
      }
    });
  }
}

// --- Started operations ---

TEST_P(OnFabrics, PendingMayBeAwaitedInAnyOrder) {
  run_ranks(3, [](Fabric& fabric) {
    Communicator& comm = fabric.world();
    std::vector<at::Tensor> tensors;
    std::vector<Pending> pending;
    for (int64_t numel = 0; numel < 20; ++numel) {
      tensors.push_back(exact_values(comm.rank(), numel, at::kFloat));
      pending.push_back(comm.start(op::all_reduce_sum(tensors.back())));
    }
    const at::Tensor last = exact_values(comm.rank(), 7, at::kFloat);
    comm.all_reduce_sum(last);  // queues up behind them
    for (const Pending& done : pending) EXPECT_TRUE(done.done());
    EXPECT_TRUE(at::equal(last, exact_sum(3, 7, at::kFloat)));
    for (int64_t numel = 19; numel >= 0; --numel) {
      pending[static_cast<size_t>(numel)].wait();
      pending[static_cast<size_t>(numel)].wait();
      EXPECT_TRUE(at::equal(tensors[static_cast<size_t>(numel)], exact_sum(3, numel, at::kFloat)));
    }
  });
}

// Two groups with operations under way at once, started in opposite orders on different ranks: each
// group goes on by itself, so the one that is started last here may be done first.
TEST_P(OnFabrics, PendingGroupsDoNotWaitForEachOther) {
  const Mesh mesh({.replica = 2, .tensor = 2});
  run_ranks(4, [&](Fabric& fabric) {
    Communicator& rows = fabric.group(mesh, {Axis::replica});
    Communicator& columns = fabric.group(mesh, {Axis::tensor});
    for (int round = 0; round < 50; ++round) {
      const at::Tensor a = exact_values(fabric.rank(), 33, at::kFloat), b = a.clone();
      std::vector<Pending> pending;
      const bool rows_first = (fabric.rank() + round) % 2 == 0;
      if (rows_first) pending.push_back(rows.start(op::all_reduce_sum(a)));
      pending.push_back(columns.start(op::all_reduce_sum(b)));
      if (!rows_first) pending.push_back(rows.start(op::all_reduce_sum(a)));
      for (size_t i = pending.size(); i-- > 0;) pending[i].wait();
      const auto sum_of = [&](AxisSet axes) {
        at::Tensor sum = at::zeros({33}, at::kFloat);
        for (int member : mesh.group(axes, fabric.rank()))
          sum += exact_values(member, 33, at::kFloat);
        return sum;
      };
      EXPECT_TRUE(at::equal(a, sum_of({Axis::replica})));
      EXPECT_TRUE(at::equal(b, sum_of({Axis::tensor})));
    }
  });
}

TEST_P(OnFabrics, PendingIsFinishedBeforeTheCommunicatorGoes) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < 4; ++rank) tensors.push_back(exact_values(rank, 1000, at::kFloat));
  run_ranks(4, [&](Fabric& fabric) {
    (void)fabric.world().start(op::all_reduce_sum(tensors[static_cast<size_t>(fabric.rank())]));
  });
  for (const at::Tensor& x : tensors) EXPECT_TRUE(at::equal(x, exact_sum(4, 1000, at::kFloat)));
}

// --- Groups, traffic, one rank ---

TEST_P(OnFabrics, FabricBuildsTheGroupsOfEverySetOfAxes) {
  const Mesh mesh({.pipeline = 2, .shard = 3, .tensor = 2});
  run_ranks(12, [&](Fabric& fabric) {
    for (int bits = 0; bits < 32; ++bits) {
      AxisSet axes;
      for (Axis axis : kAxes)
        if (bits >> static_cast<int>(axis) & 1) axes.insert(axis);
      Communicator& group = fabric.group(mesh, axes);
      EXPECT_EQ(&group, &fabric.group(mesh, axes));
      EXPECT_EQ(group.size(), mesh.size(axes));
      EXPECT_EQ(group.rank(), mesh.group_rank(axes, fabric.rank()));
      EXPECT_EQ(group.members(), mesh.group(axes, fabric.rank()));
      // The set of members as bits: a sum over the group.
      const at::Tensor x = at::full({1}, int64_t{1} << fabric.rank(), at::kLong);
      group.all_reduce_sum(x);
      int64_t expected = 0;
      for (int member : mesh.group(axes, fabric.rank())) expected += int64_t{1} << member;
      EXPECT_EQ(x.item<int64_t>(), expected) << to_string(axes);
    }
    EXPECT_EQ(fabric.world().size(), 12);
  });
  EXPECT_THROW(run_ranks(2, [&](Fabric& fabric) { fabric.group(mesh, {Axis::shard}); }),
               InputError);
  EXPECT_THROW(run_ranks(0, [](Fabric&) {}), InputError);
}

TEST_P(OnFabrics, FabricRefusesGroupsInDifferentOrders) {
  const Mesh mesh({.replica = 2, .shard = 2});
  try {
    run_ranks(4, [&](Fabric& fabric) {
      fabric.group(mesh, {fabric.rank() == 3 ? Axis::shard : Axis::replica});
      fabric.group(mesh, {fabric.rank() == 3 ? Axis::replica : Axis::shard});
    });
    FAIL() << "accepted";
  } catch (const FabricError& error) {
    EXPECT_NE(std::string(error.what()).find("shard of replica=2,shard=2"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 3"), std::string::npos) << error.what();
  }
}

TEST_P(OnFabrics, FabricGivesRanksOneThreadAndTheCallerItsOwn) {
  const int before = at::get_num_threads();
  run_ranks(3, [](Fabric&) { EXPECT_EQ(at::get_num_threads(), 1); });
  EXPECT_EQ(at::get_num_threads(), before);
}

TEST_P(OnFabrics, TrafficCountsWhatARankReceives) {
  run_ranks(4, [](Fabric& fabric) {
    Communicator& comm = fabric.world();
    const int64_t f = 4;  // bytes of an fp32
    const at::Tensor x = at::zeros({80}, at::kFloat), piece = at::zeros({20}, at::kFloat);
    comm.all_reduce_sum(x);
    comm.all_reduce_sum(x);
    comm.all_gather(piece, x);
    comm.reduce_scatter_sum(x, piece);
    comm.broadcast(x, 1);
    comm.barrier();
    comm.all_to_all(x, at::zeros({80}, at::kFloat), {20, 20, 20, 20}, {20, 20, 20, 20});
    if (comm.rank() == 0) comm.send(x, 3);
    if (comm.rank() == 3) comm.recv(x, 0);
    const Traffic traffic = comm.traffic();
    EXPECT_EQ(traffic[OpKind::all_reduce_sum].calls, 2);
    EXPECT_EQ(traffic[OpKind::all_reduce_sum].bytes, 2 * 2 * 60 * f);  // 3/4 of 80, there and back
    EXPECT_EQ(traffic[OpKind::all_gather].bytes, 60 * f);
    EXPECT_EQ(traffic[OpKind::reduce_scatter_sum].bytes, 60 * f);
    EXPECT_EQ(traffic[OpKind::broadcast].bytes, comm.rank() == 1 ? 0 : 80 * f);
    EXPECT_EQ(traffic[OpKind::barrier].calls, 1);
    EXPECT_EQ(traffic[OpKind::all_to_all].bytes, 60 * f);
    EXPECT_EQ(traffic[OpKind::send].calls, comm.rank() == 0);
    EXPECT_EQ(traffic[OpKind::recv].bytes, comm.rank() == 3 ? 80 * f : 0);
    EXPECT_EQ(traffic.total().calls, comm.rank() == 0 || comm.rank() == 3 ? 8 : 7);
  });
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// Signed zeros, denormals and NaNs with a payload would show an addition, a conversion or a
// rounding.
void expect_no_op(Communicator& comm) {
  ASSERT_EQ(comm.size(), 1);
  const at::Tensor odd =
      at::tensor({0, INT32_MIN, 1, 0x7fc12345, static_cast<int>(0xffc54321), 0x7f800000}, at::kInt)
          .view(at::kFloat);
  const at::Tensor halves = odd.view(at::kBFloat16);
  for (const at::Tensor& x : {odd, halves}) {
    const at::Tensor y = x.clone(), z = at::zeros_like(x);
    comm.all_reduce_sum(y);
    comm.all_reduce_max(y);
    comm.broadcast(y, 0);
    comm.barrier();
    EXPECT_TRUE(same_bits(y, x));
    comm.all_gather(y, z);
    EXPECT_TRUE(same_bits(z, x));
    z.zero_();
    comm.reduce_scatter_sum(y, z);
    EXPECT_TRUE(same_bits(z, x));
    z.zero_();
    comm.all_to_all(y, z, {y.numel()}, {y.numel()});
    EXPECT_TRUE(same_bits(z, x));
    comm.start(op::all_reduce_sum(y)).wait();
    EXPECT_TRUE(same_bits(y, x));
  }
  EXPECT_THROW(comm.send(odd, 0), InputError);
}

TEST_P(OnFabrics, OneRankChangesNoBit) {
  const auto solo = make_solo_fabric();
  expect_no_op(solo->world());
  expect_no_op(solo->group(Mesh(), {Axis::shard}));
  run_ranks(1, [](Fabric& fabric) { expect_no_op(fabric.world()); });
  run_ranks(
      2, [](Fabric& fabric) { expect_no_op(fabric.group(Mesh({.replica = 2}), {Axis::shard})); });
}

}  // namespace
}  // namespace trireme
