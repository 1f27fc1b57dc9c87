// What only the fabric over shared memory has: windows, channels, and processes that die.
#include "fabric/process_fabric.h"

#include <gtest/gtest.h>

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <numeric>

#include "fabric/test_values.h"
#include "fabric/thread_fabric.h"

namespace trireme {
namespace {

// Pieces of very different length: some rounds have nothing of some ranks.
std::vector<int64_t> ragged(int64_t numel, int ranks) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks), 0);
  for (int rank = ranks - 1; rank > 0 && numel > 0; --rank) {
    counts[static_cast<size_t>(rank)] = numel / (rank + 1) / 2;
    numel -= counts[static_cast<size_t>(rank)];
  }
  counts[0] = numel;
  return counts;
}

// Every operation on values whose sums round; what each has put out, on one rank.
std::vector<at::Tensor> results_of_all_operations(Communicator& comm, int64_t numel,
                                                  at::ScalarType type) {
  const int ranks = comm.size(), rank = comm.rank();
  std::vector<at::Tensor> results;
  const auto mine = [&](uint64_t seed) { return rough_values(rank, numel, type, seed); };
  results.push_back(mine(1));
  comm.all_reduce_sum(results.back());
  results.push_back(mine(2));
  comm.all_reduce_max(results.back());
  results.push_back(mine(3));
  comm.broadcast(results.back(), ranks - 1);
  const std::vector<int64_t> counts = ragged(numel, ranks);
  const int64_t own = counts[static_cast<size_t>(rank)];
  results.push_back(at::zeros({own}, type));
  comm.reduce_scatter_sum(mine(4), results.back(), counts);
  results.push_back(at::zeros({numel}, type));
  comm.all_gather(rough_values(rank, own, type, 5), results.back(), counts);
  // From rank a to rank b: the piece that a has of counts, cut like counts.
  std::vector<int64_t> send = ragged(own, ranks), receive;
  for (int from = 0; from < ranks; ++from)
    receive.push_back(ragged(counts[static_cast<size_t>(from)], ranks)[static_cast<size_t>(rank)]);
  results.push_back(at::zeros({std::accumulate(receive.begin(), receive.end(), int64_t{0})}, type));
  comm.all_to_all(rough_values(rank, own, type, 6), results.back(), send, receive);
  if (ranks > 1) {
    results.push_back(at::zeros({numel}, type));
    const Pending sent = comm.start(op::send(mine(7), (rank + 1) % ranks));
    comm.recv(results.back(), (rank + ranks - 1) % ranks);
    sent.wait();
  }
  return results;
}

// Sizes around and far beyond a window, of which an operation needs many.
TEST(ProcessFabric, GivesTheBitsOfTheThreadFabric) {
  for (int ranks : {2, 3, 4})
    for (auto [numel, type] : {std::pair(int64_t{1}, at::kFloat),
                               {131'072, at::kFloat},
                               {131'073, at::kFloat},
                               {400'003, at::kFloat},
                               {150'007, at::kDouble},
                               {270'001, at::kBFloat16}}) {
      std::vector<std::vector<at::Tensor>> expected(static_cast<size_t>(ranks));
      const auto run = [&](Fabric& fabric) {
        return results_of_all_operations(fabric.world(), numel, type);
      };
      run_ranks(ranks, [&](Fabric& fabric) {
        expected[static_cast<size_t>(fabric.rank())] = run(fabric);
      });
      run_ranks_in_shared_memory(ranks, [&](Fabric& fabric) {
        const std::vector<at::Tensor> found = run(fabric);
        const auto& wanted = expected[static_cast<size_t>(fabric.rank())];
        ASSERT_EQ(found.size(), wanted.size());
        for (size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(at::equal(found[i], wanted[i]))
              << "operation " << i << ", " << ranks << " ranks, " << numel << " of " << type;
      });
    }
}

}  // namespace
}  // namespace trireme
