// Times each operator of src/kernel, fused against ATen, at the sizes of one micro-batch of the
// workloads W1 (hidden 256, 8/4 heads, ffn 688, vocabulary 4096, 256 tokens) and W3 (hidden 768,
// 12/4 heads, ffn 2048, vocabulary 32000, 512 tokens), on one thread. bench/kernels builds and runs
// it.
//
// The two sides alternate, round by round, and the medians are printed. "of bound" is the share of
// what the machine can do, measured in the same run: for FLOPs its sgemm, for bytes a memcpy
// that moves as many (cached or not as the operator's are). Results are compared before timing.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernel/adamw.h"
#include "kernel/attention.h"
#include "kernel/cross_entropy.h"
#include "kernel/embedding.h"
#include "kernel/linear.h"
#include "kernel/rms_norm.h"
#include "kernel/rope.h"
#include "kernel/activation.h"

namespace trireme::kernel {
namespace {

using Run = std::function<void()>;

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 0.02;

// Of this thread on a CPU: what other programs on the machine take does not count.
double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(const Run& run, int times) {
  const double start = cpu_seconds();
  for (int i = 0; i < times; ++i) run();
  return (cpu_seconds() - start) / times;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// Median seconds of each run, round by round in turn.
std::vector<double> time_in_turn(const std::vector<Run>& runs) {
  std::vector<int> times;
  for (const Run& run : runs) {
    run();
    times.push_back(std::max(1, static_cast<int>(kRoundSeconds / seconds_of(run, 1))));
  }
  std::vector<std::vector<double>> seconds(runs.size());
  for (int round = 0; round < kRounds; ++round)
    for (size_t k = 0; k < runs.size(); ++k) seconds[k].push_back(seconds_of(runs[k], times[k]));
  std::vector<double> medians;
  for (auto& s : seconds) medians.push_back(median(s));
  return medians;
}

constexpr int64_t kGemm = 768;

struct Operator {
  std::string name;
  double flops, bytes;  // of one run; bytes count reads and writes; the larger bound counts
  Run fused, aten;
};

std::vector<double> sgemm_gflops;  // as measured beside each operator

void print(const Operator& op) {
  const auto half = static_cast<size_t>(op.bytes / 2);
  std::vector<char> from(half, 1), to(half, 2);
  const at::Tensor a = at::randn({kGemm, kGemm}), b = at::randn({kGemm, kGemm});
  at::Tensor c = at::empty({kGemm, kGemm});
  const std::vector<double> seconds =
      time_in_turn({op.fused, op.aten, [&] { std::memcpy(to.data(), from.data(), half); },
                    [&] { at::mm_out(c, a, b); }});
  const double gflops = 2e-9 * kGemm * kGemm * kGemm / seconds[3];
  sgemm_gflops.push_back(gflops);
  const double bound = std::max(op.flops / (1e9 * gflops), op.bytes > 0 ? seconds[2] : 0);
  std::printf("%-36s %9.1f us %9.1f us %8.2f x %6.0f %%\n", op.name.c_str(), 1e6 * seconds[0],
              1e6 * seconds[1], seconds[1] / seconds[0], 100 * bound / seconds[0]);
  std::fflush(stdout);
}

using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

struct Pair {
  std::string name;
  Function fused, aten;
  std::vector<at::Tensor> inputs;  // leaves, those with gradients first
  size_t differentiable;
  double tolerance;
  double forward_flops, forward_bytes, backward_flops, backward_bytes;
};

void check_close(const std::string& what, const at::Tensor& a, const at::Tensor& b,
                 double tolerance) {
  const double error = ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item<double>();
  if (!(error <= tolerance))
    throw CheckError(concat(what, ": fused and ATen differ by ", error, ", allowed ", tolerance));
}

// Forward without recording, then backward alone, through a graph that stays.
void print(const Pair& pair) {
  const std::vector<at::Tensor> leaves(pair.inputs.begin(),
                                       pair.inputs.begin() + pair.differentiable);
  const auto fused = pair.fused(pair.inputs), aten = pair.aten(pair.inputs);
  std::vector<at::Tensor> seeds;
  for (const at::Tensor& out : fused) seeds.push_back(at::randn_like(out));
  const auto backward = [&](const std::vector<at::Tensor>& outs) {
    return torch::autograd::grad(outs, leaves, seeds, /*retain_graph=*/true);
  };
  for (size_t k = 0; k < fused.size(); ++k)
    check_close(pair.name, fused[k].detach(), aten[k].detach(), pair.tolerance);
  const auto ours = backward(fused), theirs = backward(aten);
  for (size_t k = 0; k < ours.size(); ++k)
    check_close(pair.name + " gradient", ours[k], theirs[k], pair.tolerance);
  const auto quietly = [&](const Function& f) {
    return [&] {
      const at::NoGradGuard no_grad;
      f(pair.inputs);
    };
  };
  print({pair.name + " forward", pair.forward_flops, pair.forward_bytes, quietly(pair.fused),
         quietly(pair.aten)});
  print({pair.name + " backward", pair.backward_flops, pair.backward_bytes,
         [&] { backward(fused); }, [&] { backward(aten); }});
}

struct Workload {
  std::string name;
  int64_t hidden, heads, kv_heads, ffn, vocabulary, rows;
  int64_t head_dim() const { return hidden / heads; }
};

at::Tensor leaf(at::IntArrayRef sizes) { return at::randn(sizes).set_requires_grad(true); }

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor turned = at::cat({x.narrow(-1, half, half).neg(), x.narrow(-1, 0, half)}, -1);
  return x * cos + turned * sin;
}

void attention_of(const Workload& w) {
  const AttentionShape shape{.batch = 1,
                             .sequence = w.rows,
                             .heads = w.heads,
                             .kv_heads = w.kv_heads,
                             .head_dim = w.head_dim()};
  const RopeTables tables = rope_tables(rope_frequencies(w.head_dim(), 1e4), w.rows, at::kFloat);
  const at::Tensor positions = at::arange(w.rows, at::kInt);
  const at::Tensor cos = at::cat({tables.cos, tables.cos}, 1);
  const at::Tensor sin = at::cat({tables.sin, tables.sin}, 1);
  const double flops = 2.0 * w.rows * w.rows * w.heads * w.head_dim();
  print(Pair{w.name + " attention with RoPE",
             [=](const auto& in) -> std::vector<at::Tensor> {
               return {attention(in[0], tables.cos, tables.sin, positions, {}, shape, Mode::fused)};
             },
             [=](const auto& in) -> std::vector<at::Tensor> {
               const auto heads = in[0].view({1, w.rows, -1, w.head_dim()}).transpose(1, 2);
               const auto q = rotate(heads.narrow(1, 0, w.heads), cos, sin);
               const auto k = rotate(heads.narrow(1, w.heads, w.kv_heads), cos, sin);
               const auto v = heads.narrow(1, w.heads + w.kv_heads, w.kv_heads);
               return {at::scaled_dot_product_attention(q, k, v, {}, 0, true, {}, true)
                           .transpose(1, 2)
                           .reshape({w.rows, -1})};
             },
             {leaf({w.rows, (w.heads + 2 * w.kv_heads) * w.head_dim()})},
             1,
             1e-4,
             flops,
             0,
             2 * flops,
             0});
}

void all_of(const Workload& w) { attention_of(w); }

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown CPU";
}

void run() {
  at::set_num_threads(1);
  std::printf("%s, torch %s, fp32, 1 thread's CPU time, median of %d rounds in turn\n\n",
              cpu_name().c_str(), TORCH_VERSION, kRounds);
  std::printf("%-36s %12s %12s %10s %8s\n", "", "fused", "ATen", "faster", "of bound");
  all_of({"W1", 256, 8, 4, 688, 4096, 256});
  all_of({"W3", 768, 12, 4, 2048, 32000, 512});
  std::printf("\nsgemm beside them: median %.1f, best %.1f GFLOP/s\n", median(sgemm_gflops),
              *std::max_element(sgemm_gflops.begin(), sgemm_gflops.end()));
}

}  // namespace
}  // namespace trireme::kernel

int main() {
  try {
    trireme::kernel::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
