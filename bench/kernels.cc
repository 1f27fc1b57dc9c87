// Times each operator of src/kernel on one thread, beside ATen's and beside what bounds it, at the
// sizes of one micro-batch of two models: W1 (6 layers, 5.4 M parameters) and W3 (12 layers, 100
// M). bench/kernels builds and runs it; an argument chooses the lines whose name contains it.
//
// Sides take turns, round by round: ours, ATen's, and the bound. For operators that multiply
// matrices the bound is their FLOPs at the speed of one large sgemm; for the others it is moving as
// many bytes as they must, cached or not as theirs are: a negation from here to there (copy) or in
// place (update), or a memchr over what is only read. Results are compared before anything is
// timed. Fused backward adds weights' gradients into grad(), as in training.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernel/activation.h"
#include "kernel/adamw.h"
#include "kernel/allocator.h"
#include "kernel/attention.h"
#include "kernel/cross_entropy.h"
#include "kernel/embedding.h"
#include "kernel/layer_norm.h"
#include "kernel/linear.h"
#include "kernel/rms_norm.h"
#include "kernel/rope.h"
#include "timing.h"

namespace trireme::kernel {
namespace {

using bench::Run;
using Tensors = std::vector<at::Tensor>;

constexpr int kRounds = 9;
constexpr double kRoundSeconds = 0.02;
constexpr int64_t kGemm = 768;

std::string pattern;

bool is_chosen(const std::string& name) { return name.find(pattern) != std::string::npos; }

struct Bound {
  double flops = 0;    // of matrix products
  double bytes = 0;    // read here, written there
  double updates = 0;  // read and written in place
  double reads = 0;    // only read

  const char* name() const {
    return flops > 0 ? "GEMM" : bytes > 0 ? "copy" : updates > 0 ? "update" : "read";
  }
};

std::vector<double> sgemm_gflops;  // as measured beside each line

// Seconds of what bounds an operator are `scale` times those of a run.
struct Yardstick {
  Run run;
  double scale;
};

Yardstick yardstick_of(const Bound& bound) {
  if (bound.flops > 0) {
    const at::Tensor a = at::randn({kGemm, kGemm}), b = at::randn({kGemm, kGemm});
    return {[a, b, c = at::empty_like(a)]() mutable { at::mm_out(c, a, b); },
            bound.flops / (2.0 * kGemm * kGemm * kGemm)};
  }
  if (bound.bytes > 0) {
    const at::Tensor from = at::zeros({static_cast<int64_t>(bound.bytes / 8)});
    return {[from, to = at::empty_like(from)]() mutable { at::neg_out(to, from); }, 1};
  }
  if (bound.updates > 0)
    return {[x = at::zeros({static_cast<int64_t>(bound.updates / 8)})] { x.neg_(); }, 1};
  const at::Tensor from = at::zeros({static_cast<int64_t>(bound.reads)}, at::kByte);
  return {[from] {
            if (std::memchr(from.data_ptr(), 1, from.numel())) throw CheckError("no 1 was written");
          },
          1};
}

// A line of the table.
void print_line(const std::string& name, const Bound& bound, const Run& fused, const Run& aten) {
  const Yardstick yardstick = yardstick_of(bound);
  const auto timings = bench::time_in_turn({fused, aten, yardstick.run}, kRounds, kRoundSeconds);
  const double ours = timings[0].seconds, theirs = timings[1].seconds;
  const double limit = yardstick.scale * timings[2].seconds;
  if (bound.flops > 0) sgemm_gflops.push_back(1e-9 * bound.flops / limit);
  std::printf("%-38s %10.1f %4.1f %% %10.1f %8.2f %10.1f %-7s %5.0f %%\n", name.c_str(), 1e6 * ours,
              100 * timings[0].spread, 1e6 * theirs, theirs / ours, 1e6 * limit, bound.name(),
              100 * limit / ours);
  std::fflush(stdout);
}

void check_close(const std::string& what, const at::Tensor& a, const at::Tensor& b,
                 double tolerance) {
  const double error = ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item<double>();
  if (!(error <= tolerance))
    throw CheckError(concat(what, ": fused and ATen differ by ", error, ", allowed ", tolerance));
}

using Function = std::function<at::Tensor(const Tensors& activations, const Tensors& weights)>;

struct Operator {
  std::string name;  // of the model and the operator
  Function fused, aten;
  Tensors activations, weights;
  Bound forward, backward;
  double tolerance = 1e-4;
};

Tensors leaves(const Tensors& values) {
  Tensors leaves;
  for (const at::Tensor& x : values) leaves.push_back(x.detach().clone().set_requires_grad(true));
  return leaves;
}

// Forward without recording, then backward alone, through a graph that stays.
void print_operator(const Operator& op) {
  if (!is_chosen(op.name)) return;
  const Tensors x = leaves(op.activations), w = leaves(op.weights), w_aten = leaves(op.weights);
  for (const at::Tensor& weight : w) weight.mutable_grad() = at::zeros_like(weight);
  const at::Tensor fused = op.fused(x, w), aten = op.aten(x, w_aten);
  const at::Tensor seed = at::randn_like(fused);
  Tensors all = x;
  all.insert(all.end(), w_aten.begin(), w_aten.end());
  const auto ours = [&] {
    if (!x.empty()) return torch::autograd::grad({fused}, x, {seed}, /*retain_graph=*/true);
    torch::autograd::backward({fused}, {seed}, /*retain_graph=*/true);
    return Tensors();
  };
  const auto theirs = [&] { return torch::autograd::grad({aten}, all, {seed}, true); };
  check_close(op.name, fused.detach(), aten.detach(), op.tolerance);
  Tensors got = ours();
  for (const at::Tensor& weight : w) got.push_back(weight.grad());
  const Tensors expected = theirs();
  for (size_t k = 0; k < expected.size(); ++k)
    check_close(op.name + " gradient", got[k], expected[k], op.tolerance);
  const auto quietly = [&](const Function& f, const Tensors& weights) {
    return [&] {
      const at::NoGradGuard no_grad;
      f(x, weights);
    };
  };
  print_line(op.name + " fwd", op.forward, quietly(op.fused, w), quietly(op.aten, w_aten));
  print_line(op.name + " bwd", op.backward, ours, theirs);
}

struct Workload {
  std::string name;
  int64_t hidden, heads, kv_heads, ffn, vocabulary, rows;
  int64_t head_dim() const { return hidden / heads; }
  int64_t qkv() const { return (heads + 2 * kv_heads) * head_dim(); }
};

double bytes_of(double numel) { return 4 * numel; }

void norms(const Workload& w) {
  const auto numel = static_cast<double>(w.rows * w.hidden);
  const auto x = at::randn({w.rows, w.hidden}), delta = at::randn({w.rows, w.hidden});
  const auto weight = at::randn({w.hidden}), bias = at::randn({w.hidden});
  const auto both = [](const std::pair<at::Tensor, at::Tensor>& sum_and_norm) {
    return sum_and_norm.second;
  };
  print_operator({.name = w.name + " add + RMSNorm",
                  .fused =
                      [=](const Tensors& in, const Tensors& weights) {
                        return both(add_rms_norm(in[0], in[1], weights[0], 1e-5, Mode::fused));
                      },
                  .aten =
                      [=](const Tensors& in, const Tensors& weights) {
                        return at::rms_norm(in[0] + in[1], {w.hidden}, weights[0], 1e-5);
                      },
                  .activations = {x, delta},
                  .weights = {weight},
                  .forward = {.bytes = bytes_of(4 * numel)},
                  .backward = {.bytes = bytes_of(3 * numel)}});
  print_operator(
      {.name = w.name + " add + LayerNorm",
       .fused =
           [=](const Tensors& in, const Tensors& weights) {
             return both(add_layer_norm(in[0], in[1], weights[0], weights[1], 1e-5, Mode::fused));
           },
       .aten =
           [=](const Tensors& in, const Tensors& weights) {
             return at::layer_norm(in[0] + in[1], {w.hidden}, weights[0], weights[1], 1e-5);
           },
       .activations = {x, delta},
       .weights = {weight, bias},
       .forward = {.bytes = bytes_of(4 * numel)},
       .backward = {.bytes = bytes_of(3 * numel)}});
  const auto heads = static_cast<double>(w.rows * w.qkv());
  print_operator(
      {.name = w.name + " RMSNorm of q and k heads",
       .fused =
           [=](const Tensors& in, const Tensors& weights) {
             return head_rms_norm(in[0], weights[0], weights[1],
                                  {w.heads, w.kv_heads, w.head_dim()}, 1e-5, Mode::fused);
           },
       .aten =
           [=](const Tensors& in, const Tensors& weights) {
             const auto all = in[0].view({w.rows, -1, w.head_dim()});
             return at::cat(
                        {at::rms_norm(all.narrow(1, 0, w.heads), {w.head_dim()}, weights[0], 1e-5),
                         at::rms_norm(all.narrow(1, w.heads, w.kv_heads), {w.head_dim()},
                                      weights[1], 1e-5),
                         all.narrow(1, w.heads + w.kv_heads, w.kv_heads)},
                        1)
                 .view({w.rows, -1});
           },
       .activations = {at::randn({w.rows, w.qkv()})},
       .weights = {at::randn({w.head_dim()}), at::randn({w.head_dim()})},
       .forward = {.bytes = bytes_of(2 * heads)},
       .backward = {.bytes = bytes_of(3 * heads)}});
}

void activations(const Workload& w) {
  const auto numel = static_cast<double>(w.rows * w.ffn);
  const auto gated = [&](const char* name, auto fused, auto aten) {
    print_operator(
        {.name = w.name + name,
         .fused = [=](const Tensors& in, const Tensors&) { return fused(in[0], Mode::fused); },
         .aten =
             [=](const Tensors& in, const Tensors&) {
               return aten(in[0].narrow(1, 0, w.ffn)) * in[0].narrow(1, w.ffn, w.ffn);
             },
         .activations = {at::randn({w.rows, 2 * w.ffn})},
         .weights = {},
         .forward = {.bytes = bytes_of(3 * numel)},
         .backward = {.bytes = bytes_of(5 * numel)}});
  };
  gated(" SwiGLU", swiglu, [](const at::Tensor& z) { return at::silu(z); });
  gated(" GeGLU", geglu, [](const at::Tensor& z) { return at::gelu(z, "tanh"); });
  print_operator(
      {.name = w.name + " GELU",
       .fused = [](const Tensors& in, const Tensors&) { return gelu(in[0], Mode::fused); },
       .aten = [](const Tensors& in, const Tensors&) { return at::gelu(in[0], "tanh"); },
       .activations = {at::randn({w.rows, w.ffn})},
       .weights = {},
       .forward = {.bytes = bytes_of(2 * numel)},
       .backward = {.bytes = bytes_of(3 * numel)}});
}

void linears(const Workload& w) {
  const auto layer = [&](const char* name, int64_t in, int64_t out) {
    const double flops = 2.0 * static_cast<double>(w.rows * in * out);
    print_operator(
        {.name = w.name + name,
         .fused = [](const Tensors& x,
                     const Tensors& weight) { return linear(x[0], weight[0], Mode::fused); },
         .aten = [](const Tensors& x,
                    const Tensors& weight) { return at::linear(x[0], weight[0]); },
         .activations = {at::randn({w.rows, in})},
         .weights = {at::randn({out, in})},
         .forward = {.flops = flops},
         .backward = {.flops = 2 * flops}});
  };
  layer(" linear qkv", w.hidden, w.qkv());
  layer(" linear out", w.hidden, w.hidden);
  layer(" linear gate|up", w.hidden, 2 * w.ffn);
  layer(" linear down", w.ffn, w.hidden);
}

void embedding_and_loss(const Workload& w) {
  const auto ids = at::randint(w.vocabulary, {w.rows}, at::kLong);
  const auto table = at::randn({w.vocabulary, w.hidden});
  const auto rows = static_cast<double>(w.rows * w.hidden);
  print_operator(
      {.name = w.name + " embedding",
       .fused = [=](const Tensors&,
                    const Tensors& weights) { return embedding(ids, weights[0], Mode::fused); },
       .aten = [=](const Tensors&,
                   const Tensors& weights) { return at::embedding(weights[0], ids); },
       .activations = {},
       .weights = {table},
       .forward = {.bytes = bytes_of(2 * rows)},
       .backward = {.bytes = bytes_of(3 * rows)}});
  const std::string name = w.name + " linear + cross-entropy, both ways";
  if (!is_chosen(name)) return;
  const auto x = at::randn({w.rows, w.hidden}).set_requires_grad(true);
  const auto weight = table.mul(0.02).set_requires_grad(true);
  const auto plain = weight.detach().clone().set_requires_grad(true);
  weight.mutable_grad() = at::zeros_like(weight);
  const double seed = 1.0 / 4096;  // exact in fp32
  const auto seeds = at::full({}, seed);
  const auto ours = [&] {
    const auto loss = linear_cross_entropy(x, weight, ids, seed, Mode::fused);
    return torch::autograd::grad({loss}, {x}, {seeds});
  };
  const auto theirs = [&] {
    const auto loss = at::cross_entropy_loss(at::linear(x, plain), ids, {}, at::Reduction::Sum);
    return torch::autograd::grad({loss}, {x, plain}, {seeds});
  };
  const auto expected = theirs();
  check_close(name, ours()[0], expected[0], 1e-4);
  check_close(name + " weight", weight.grad(), expected[1], 1e-4);
  print_line(
      name, {.flops = 6.0 * rows * static_cast<double>(w.vocabulary)}, [&] { ours(); },
      [&] { theirs(); });
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = x.size(-1) / 2;
  const at::Tensor turned = at::cat({x.narrow(-1, half, half).neg(), x.narrow(-1, 0, half)}, -1);
  return x * cos + turned * sin;
}

// Attention with RoPE. `length`: of each document; the mask that ATen gets then is a matrix.
void attention_of(const Workload& w, const std::string& name, int64_t length,
                  AttentionShape options = {}) {
  if (!is_chosen(w.name + " attention" + name)) return;
  const AttentionShape shape{.batch = 1,
                             .sequence = w.rows,
                             .heads = w.heads,
                             .kv_heads = w.kv_heads,
                             .head_dim = w.head_dim(),
                             .window = options.window,
                             .softcap = options.softcap};
  const RopeTables tables = rope_tables(rope_frequencies(w.head_dim(), 1e4), w.rows, at::kFloat);
  const at::Tensor place = at::arange(w.rows, at::kInt);
  const at::Tensor document = place.floor_divide(length), positions = place.remainder(length);
  const at::Tensor cos = at::cat({tables.cos, tables.cos}, 1).index_select(0, positions);
  const at::Tensor sin = at::cat({tables.sin, tables.sin}, 1).index_select(0, positions);
  const bool causal = length == w.rows && shape.window == 0 && shape.softcap == 0;
  at::Tensor seen;
  if (!causal) {
    const at::Tensor distance = place.unsqueeze(1) - place.unsqueeze(0);
    seen = distance.ge(0).logical_and(document.unsqueeze(1).eq(document.unsqueeze(0)));
    if (shape.window > 0) seen = seen.logical_and(distance.lt(shape.window));
  }
  const auto aten = [=](const Tensors& in, const Tensors&) {
    const auto heads = in[0].view({1, w.rows, -1, w.head_dim()}).transpose(1, 2);
    const auto q = rotate(heads.narrow(1, 0, w.heads), cos, sin);
    const auto k = rotate(heads.narrow(1, w.heads, w.kv_heads), cos, sin);
    const auto v = heads.narrow(1, w.heads + w.kv_heads, w.kv_heads);
    at::Tensor out;
    if (shape.softcap == 0) {
      out = causal ? at::scaled_dot_product_attention(q, k, v, {}, 0, true, {}, true)
                   : at::scaled_dot_product_attention(q, k, v, seen, 0, false, {}, true);
    } else {
      const int64_t group = w.heads / w.kv_heads;
      auto scores = at::matmul(q, k.repeat_interleave(group, 1).transpose(2, 3)) /
                    std::sqrt(static_cast<double>(w.head_dim()));
      scores = (scores / shape.softcap).tanh() * shape.softcap;
      out = at::matmul(scores.masked_fill(seen.logical_not(), -1e30).softmax(-1),
                       v.repeat_interleave(group, 1));
    }
    return out.transpose(1, 2).reshape({w.rows, -1});
  };
  const auto rows = static_cast<double>(w.rows);
  const double pairs = causal ? rows * (rows + 1) / 2 : seen.sum().item<double>();
  const double flops = 4 * pairs * static_cast<double>(w.heads * w.head_dim());
  print_operator({.name = w.name + " attention" + name,
                  .fused =
                      [=](const Tensors& in, const Tensors&) {
                        return attention(in[0], tables.cos, tables.sin, positions,
                                         document.view({1, -1}), shape, Mode::fused);
                      },
                  .aten = aten,
                  .activations = {at::randn({w.rows, w.qkv()})},
                  .weights = {},
                  .forward = {.flops = flops},
                  .backward = {.flops = 2 * flops}});
}

// One new token for each of `batch` sequences behind `cached` ones.
void decode(const Workload& w, int64_t batch, int64_t cached) {
  const std::string name = concat(w.name, " decode, batch ", batch, ", ", cached, " cached");
  if (!is_chosen(name)) return;
  const int64_t head_dim = w.head_dim();
  const KeyValueCache cache{at::randn({batch, w.kv_heads, cached + 1, head_dim}),
                            at::randn({batch, w.kv_heads, cached + 1, head_dim})};
  const at::Tensor lengths = at::full({batch}, cached, at::kLong);
  const AttentionShape shape{.batch = batch,
                             .sequence = 1,
                             .heads = w.heads,
                             .kv_heads = w.kv_heads,
                             .head_dim = head_dim};
  const at::Tensor qkv = at::randn({batch, w.qkv()});
  const auto ours = [&] {
    return attention_cached(qkv, {}, {}, {}, lengths, cache, shape, Mode::fused);
  };
  const auto theirs = [&] {
    const auto heads = qkv.view({batch, -1, 1, head_dim});
    cache.keys.narrow(2, cached, 1).copy_(heads.narrow(1, w.heads, w.kv_heads));
    cache.values.narrow(2, cached, 1).copy_(heads.narrow(1, w.heads + w.kv_heads, w.kv_heads));
    return at::scaled_dot_product_attention(heads.narrow(1, 0, w.heads), cache.keys, cache.values,
                                            {}, 0, false, {}, true)
        .reshape({batch, -1});
  };
  check_close(name, ours(), theirs(), 1e-4);
  // Read, and not copied: as many bytes again are written by the memcpy, hence half of them.
  print_line(
      name, {.reads = bytes_of(static_cast<double>(2 * cache.keys.numel()))}, [&] { ours(); },
      [&] { theirs(); });
}

// A linear layer of few rows: bound by reading its weight.
void few_rows(const Workload& w, int64_t rows) {
  const std::string name = concat(w.name, " linear gate|up of ", rows, " rows");
  if (!is_chosen(name)) return;
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::randn({rows, w.hidden}), weight = at::randn({2 * w.ffn, w.hidden});
  check_close(name, linear(x, weight, Mode::fused), at::linear(x, weight), 1e-4);
  print_line(
      name, {.reads = bytes_of(static_cast<double>(weight.numel()))},
      [&] { linear(x, weight, Mode::fused); }, [&] { at::linear(x, weight); });
}

void updates(const std::string& name, int64_t numel) {
  const std::string adamw = name + " AdamW", sum = name + " sum of two lanes and its squares";
  if (!is_chosen(adamw) && !is_chosen(sum)) return;
  const auto n = static_cast<double>(numel);
  Tensors ours, theirs;
  for (int k = 0; k < 4; ++k) {  // p, g, m, v
    ours.push_back(at::randn({numel}).abs_());
    theirs.push_back(ours.back().clone());
  }
  const AdamWStep step{.lr = 1e-3,
                       .beta1 = 0.9,
                       .beta2 = 0.95,
                       .eps = 1e-8,
                       .weight_decay = 0.1,
                       .gradient_scale = 1,
                       .t = 5};
  const Tensors steps{at::scalar_tensor(5.0)};
  const auto fused = [&] { adamw_(ours[0], ours[1], ours[2], ours[3], step, Mode::fused); };
  const auto aten = [&] {
    const Tensors p{theirs[0]}, g{theirs[1]}, m{theirs[2]}, v{theirs[3]};
    at::_fused_adamw_(p, g, m, v, {}, steps, 1e-3, 0.9, 0.95, 0.1, 1e-8, false, false);
  };
  if (is_chosen(adamw)) {
    fused(), aten();
    check_close(adamw, ours[0], theirs[0], 1e-5);
    print_line(adamw, {.updates = bytes_of(7 * n)}, fused, aten);
  }
  if (!is_chosen(sum)) return;
  print_line(
      sum, {.updates = bytes_of(3 * n)},
      [&] { add_up_(ours[1], std::span(&theirs[1], 1), Mode::fused); },
      [&] { theirs[2].add_(theirs[1]).dot(theirs[2]); });
}

void all_of(const Workload& w) {
  embedding_and_loss(w);
  norms(w);
  linears(w);
  activations(w);
  attention_of(w, "", w.rows);
  attention_of(w, ", 4 documents", w.rows / 4);
  attention_of(w, ", window 64", w.rows, {.window = 64});
  attention_of(w, ", soft-cap", w.rows, {.softcap = 50});
  for (const int64_t batch : {1, 8}) {
    decode(w, batch, 512);
    few_rows(w, batch);
  }
}

void run() {
  at::set_num_threads(1);
  tune_malloc();  // as trireme itself, for both sides
  c10::SetCPUAllocator(new CountingAllocator({.cache_bytes = int64_t{4} << 30}), 1);
  std::printf("%s, torch %s, fp32, 1 thread's CPU time in us, median of %d rounds in turn\n",
              bench::processor().c_str(), TORCH_VERSION, kRounds);
  std::printf("+-: half the distance of the quartiles\n\n");
  std::printf("%-38s %10s %6s %10s %8s %10s %-7s %7s\n", "", "fused", "+-", "ATen", "faster",
              "bound", "by", "reached");
  const Workload w1{"W1", 256, 8, 4, 688, 4096, 256}, w3{"W3", 768, 12, 4, 2048, 32000, 512};
  all_of(w1);
  updates("W1", 5'400'000);
  all_of(w3);
  updates("W3", 40'000'000);
  Workload longer = w3;
  longer.rows = 4096;
  attention_of(longer, " of 4096", longer.rows);
  attention_of(longer, " of 4096, 8 documents", longer.rows / 8);
  attention_of(longer, " of 4096, window 512", longer.rows, {.window = 512});
  Workload head = w3;
  head.hidden = w3.head_dim(), head.heads = head.kv_heads = 1, head.rows = 32768;
  attention_of(head, " of 32768, 1 head", head.rows);
  if (!sgemm_gflops.empty())
    std::printf("\nsgemm beside them: median %.1f, best %.1f GFLOP/s\n",
                bench::median(sgemm_gflops),
                *std::max_element(sgemm_gflops.begin(), sgemm_gflops.end()));
}

}  // namespace
}  // namespace trireme::kernel

int main(int argc, char** argv) {
  try {
    if (argc > 1) trireme::kernel::pattern = argv[1];
    trireme::kernel::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
