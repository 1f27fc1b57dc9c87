#include "infer/generator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "base/error.h"
#include "fabric/communicator.h"
#include "plan/builder.h"
#include "plan/verifier.h"

namespace trireme {
namespace {

std::unique_ptr<Executor> forward_executor(const Model& model, Parameters& parameters, Lanes& lanes,
                                           const RankGroups& groups, kernel::Mode mode) {
  const Graph graph = graph_of(model, static_cast<int64_t>(c10::elementSize(parameters.dtype())),
                               groups.shard ? groups.shard->size() : 1);
  StepProgram program = build_forward(
      graph, {.micro_samples = {1}, .lanes = lanes.count(), .sharded = parameters.sharded()});
  verify(program, graph);
  return std::make_unique<Executor>(model, parameters, lanes, std::move(program),
                                    ExecutorOptions{.mode = mode, .groups = groups});
}

at::Tensor ids_of(std::span<const int32_t> tokens, int64_t vocab) {
  at::Tensor ids = at::empty({static_cast<int64_t>(tokens.size())}, at::kLong);
  for (size_t i = 0; i < tokens.size(); ++i) {
    TRIREME_CHECK(tokens[i] >= 0 && tokens[i] < vocab, "token ", tokens[i],
                  " is outside the vocabulary of ", vocab);
    ids.mutable_data_ptr<int64_t>()[i] = tokens[i];
  }
  return ids;
}

at::Tensor positions(int64_t begin, int64_t end) {
  return at::arange(begin, end, at::TensorOptions(at::kInt));
}

}  // namespace

Generator::Generator(const LanguageModel& family, const Model& model, Parameters& parameters,
                     Lanes& lanes, RankGroups groups, kernel::Mode mode, int64_t capacity)
    : family_(family),
      capacity_(capacity),
      cache_(family.make_cache(parameters.dtype(), 1, capacity)),
      executor_(forward_executor(model, parameters, lanes, groups, mode)) {}

Generator::~Generator() = default;

std::vector<int32_t> Generator::generate(std::span<const int32_t> prompt,
                                         const GenerationOptions& options, uint64_t sequence,
                                         const std::function<bool(int32_t)>& on_token) {
  check(options.sampling);
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  TRIREME_CHECK(prompt_tokens > 0, "the prompt is empty: generation needs at least one token");
  TRIREME_CHECK(prompt_tokens < capacity_, "the prompt has ", prompt_tokens,
                " tokens and leaves no room: the model reads at most ", capacity_);
  cache_.lengths.zero_();
  std::vector<int32_t> generated;
  std::vector<int32_t> next(prompt.begin(), prompt.end());
  const int64_t most = std::min(options.max_tokens, capacity_ - prompt_tokens);
  for (int64_t i = 0; i < most; ++i) {
    const at::Tensor logits = logits_after(next);
    const int32_t token = sample(logits, options.sampling, sequence, static_cast<uint64_t>(i));
    if (std::ranges::find(options.end_tokens, token) != options.end_tokens.end()) break;
    generated.push_back(token);
    if (on_token && !on_token(token)) break;
    next = {token};
  }
  return generated;
}

at::Tensor Generator::logits_after(std::span<const int32_t> tokens) {
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t before = cache_.lengths.item<int64_t>();
  StepInput input;
  input.micro_batches.push_back({{"tokens", ids_of(tokens, family_.vocab())},
                                 {"positions", positions(before, before + n)},
                                 {"rows", at::full({1}, n - 1, at::kLong)}});
  input.want = Want::logits;
  input.cache = &cache_;
  StepResult result = executor_->run(input);
  cache_.lengths.add_(n);
  return result.results[0].at("logits")[0];
}

Scorer::Scorer(const LanguageModel& family, const Model& model, Parameters& parameters,
               Lanes& lanes, RankGroups groups, kernel::Mode mode)
    : family_(family), executor_(forward_executor(model, parameters, lanes, groups, mode)) {}

Scorer::~Scorer() = default;

std::vector<double> Scorer::log_probs(std::span<const int32_t> tokens) {
  const auto n = static_cast<int64_t>(tokens.size());
  if (n < 2) return {};
  StepInput input;
  input.micro_batches.push_back(
      {{"tokens", ids_of(tokens.first(tokens.size() - 1), family_.vocab())},
       {"positions", positions(0, n - 1)},
       {"documents", at::zeros({1, n - 1}, at::kInt)},
       {"labels", ids_of(tokens.subspan(1), family_.vocab())}});
  input.want = Want::log_probs;
  const at::Tensor scores =
      executor_->run(input).results[0].at("log_probs").to(at::kDouble).contiguous();
  return {scores.const_data_ptr<double>(), scores.const_data_ptr<double>() + scores.numel()};
}

}  // namespace trireme
