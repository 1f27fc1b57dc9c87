// Times collectives of the thread fabric beside memcpy. bench/fabric builds and runs it.
//
// A buffer has 32 MiB of fp32, or as many elements of bf16, on every rank. In each round every
// operation runs once, and so does a memcpy of a buffer by all ranks at once; medians of the rounds
// are printed, from one barrier to the next on rank 0. Results are compared before timing.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "fabric/thread_fabric.h"

namespace trireme {
namespace {

constexpr int64_t kNumel = int64_t{8} << 20;  // 32 MiB of fp32
constexpr int kRounds = 7;
constexpr int kCalls = 500;  // of the operations too short to time alone

struct Timed {
  const char* name;
  std::function<void()> run;
  int calls;  // in one timing
};

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

// Ranks bring 1, 2, …: every sum is known.
void check(Communicator& comm, const at::Tensor& whole, const at::Tensor& shard) {
  const int64_t sum = int64_t{comm.size()} * (comm.size() + 1) / 2;
  whole.fill_(comm.rank() + 1);
  comm.reduce_scatter_sum(whole, shard);
  TRIREME_ASSERT(shard.eq(sum).all().item<bool>(), "reduce_scatter_sum");
  whole.zero_();
  comm.all_gather(shard, whole);
  TRIREME_ASSERT(whole.eq(sum).all().item<bool>(), "all_gather");
  whole.fill_(comm.rank() + 1);
  comm.all_reduce_sum(whole);
  TRIREME_ASSERT(whole.eq(sum).all().item<bool>(), "all_reduce_sum");
  whole.zero_();  // sums of zeros stay what they are, however often
}

void time_rank(Fabric& fabric) {
  Communicator& comm = fabric.world();
  const at::Tensor whole = at::zeros({kNumel}, at::kFloat), other = at::zeros({kNumel}, at::kFloat);
  const at::Tensor half = at::zeros({kNumel}, at::kBFloat16);
  const at::Tensor shard = at::zeros({kNumel / comm.size()}, at::kFloat);
  const at::Tensor few = at::zeros({16}, at::kDouble);
  check(comm, whole, shard);
  const std::vector<int64_t> counts(static_cast<size_t>(comm.size()), kNumel / comm.size());
  const std::vector<Timed> operations = {
      {"memcpy", [&] { std::memcpy(other.data_ptr(), whole.data_ptr(), whole.nbytes()); }, 1},
      {"all_gather", [&] { comm.all_gather(shard, whole); }, 1},
      {"reduce_scatter_sum", [&] { comm.reduce_scatter_sum(whole, shard); }, 1},
      {"all_reduce_sum", [&] { comm.all_reduce_sum(whole); }, 1},
      {"reduce_scatter_sum bf16 to fp32", [&] { comm.reduce_scatter_sum(half, shard); }, 1},
      {"all_reduce_sum bf16", [&] { comm.all_reduce_sum(half); }, 1},
      {"all_to_all", [&] { comm.all_to_all(whole, other, counts, counts); }, 1},
      {"all_reduce_sum of 16 doubles", [&] { comm.all_reduce_sum(few); }, kCalls},
      {"barrier", [&] { comm.barrier(); }, kCalls},
  };
  std::vector<std::vector<double>> seconds(operations.size());
  for (int round = -1; round < kRounds; ++round)  // the first one warms up
    for (size_t i = 0; i < operations.size(); ++i) {
      comm.barrier();
      const auto begin = std::chrono::steady_clock::now();
      for (int call = 0; call < operations[i].calls; ++call) operations[i].run();
      comm.barrier();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      if (round >= 0) seconds[i].push_back(took.count() / operations[i].calls);
    }
  if (fabric.rank() != 0) return;
  double copy_seconds = 0;
  for (size_t i = 0; i < operations.size(); ++i) {
    std::vector<double>& samples = seconds[i];
    std::ranges::nth_element(samples, samples.begin() + kRounds / 2);
    const double median = samples[kRounds / 2];
    if (i == 0) copy_seconds = median;
    if (operations[i].calls > 1)
      std::printf("  %-34s %10.1f us\n", operations[i].name, 1e6 * median);
    else
      std::printf("  %-34s %10.2f ms   %5.2f x memcpy\n", operations[i].name, 1e3 * median,
                  median / copy_seconds);
  }
}

}  // namespace
}  // namespace trireme

int main() {
  using namespace trireme;
  std::printf("%s, %u cores; torch %s\n", processor().c_str(), std::thread::hardware_concurrency(),
              TORCH_VERSION);
  for (int ranks : {2, 4, 8}) {
    std::printf("%d ranks, %lld elements each, all at once:\n", ranks,
                static_cast<long long>(kNumel));
    run_ranks(ranks, time_rank);
  }
}
