#include "infer/generator.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>

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

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

at::Tensor positions(int64_t begin, int64_t end) {
  return at::arange(begin, end, at::TensorOptions(at::kInt));
}

}  // namespace

std::vector<int32_t> Generated::ids() const {
  std::vector<int32_t> ids;
  for (const SampledToken& token : tokens) ids.push_back(token.id);
  return ids;
}

std::unique_ptr<Lanes> generation_lanes(int threads) {
  return std::make_unique<Lanes>(1, false, [threads]() -> std::shared_ptr<void> {
    at::set_num_threads(threads);
    return nullptr;
  });
}

Generator::Generator(const LanguageModel& family, const Model& model, Parameters& parameters,
                     Lanes& lanes, RankGroups groups, kernel::Mode mode, int64_t capacity,
                     int64_t batch)
    : family_(family),
      lanes_(lanes),
      capacity_(capacity),
      batch_(batch),
      cache_(family.make_cache(parameters.dtype(), batch, capacity)),
      executor_(forward_executor(model, parameters, lanes, groups, mode)) {}

Generator::~Generator() = default;

// One that is being generated; its place among them is its slot of the cache.
struct Generator::Sequence {
  size_t index;               // of its prompt
  std::vector<int32_t> text;  // the prompt and what follows
  size_t drawn = 0;           // how many follow
};

std::vector<Generated> Generator::generate(std::span<const std::vector<int32_t>> prompts,
                                           const GenerationOptions& options,
                                           uint64_t first_sequence, const Listener& listener) {
  check(options.sampling);
  TRIREME_ASSERT(options.max_tokens >= 1);
  for (const std::vector<int32_t>& prompt : prompts) {
    TRIREME_CHECK(!prompt.empty(), "the prompt is empty: generation needs at least one token");
    TRIREME_CHECK(static_cast<int64_t>(prompt.size()) < capacity_, "the prompt has ", prompt.size(),
                  " tokens and leaves no room: the model reads at most ", capacity_);
  }
  std::vector<Generated> generated(prompts.size());
  // Appends a token; false when the sequence is complete.
  const auto extend = [&](Sequence& sequence, const SampledToken& token) {
    Generated& done = generated[sequence.index];
    const auto goes_on = [&] {
      if (std::ranges::find(options.end_tokens, token.id) != options.end_tokens.end()) {
        done.finish = Generated::Finish::end;
        return false;
      }
      done.tokens.push_back(token);
      sequence.text.push_back(token.id);
      ++sequence.drawn;
      if (listener.on_token && !listener.on_token(sequence.index, token)) {
        done.finish = Generated::Finish::caller;
        return false;
      }
      return static_cast<int64_t>(sequence.drawn) < options.max_tokens &&
             static_cast<int64_t>(sequence.text.size()) < capacity_;
    };
    if (goes_on()) return true;
    if (listener.on_done) listener.on_done(sequence.index, done);
    return false;
  };

  std::vector<Sequence> active;
  for (size_t next = 0; next < prompts.size() || !active.empty();) {
    while (next < prompts.size() && static_cast<int64_t>(active.size()) < batch_) {
      const auto slot = static_cast<int64_t>(active.size());
      active.push_back({next, prompts[next]});
      ++next;
      const at::Tensor logits = read_prompt(active.back().text, slot);
      if (!extend(active.back(), draw({&active.back(), 1}, logits, options, first_sequence)[0]))
        active.pop_back();
    }
    if (active.empty()) continue;
    const auto start = Clock::now();
    std::vector<int32_t> last;
    for (const Sequence& sequence : active) last.push_back(sequence.text.back());
    const at::Tensor logits = logits_after(last, slots(0, static_cast<int64_t>(active.size())));
    const std::vector<SampledToken> drawn = draw(active, logits, options, first_sequence);
    ++times_.steps;
    times_.step_tokens += static_cast<int64_t>(active.size());
    // From the last slot down, so that what moves into a free one has been extended already.
    for (size_t slot = active.size(); slot-- > 0;) {
      if (extend(active[slot], drawn[slot])) continue;
      if (slot + 1 < active.size()) {
        move_slot(static_cast<int64_t>(active.size()) - 1, static_cast<int64_t>(slot));
        active[slot] = std::move(active.back());
      }
      active.pop_back();
    }
    times_.step_seconds += seconds_since(start);
  }
  return generated;
}

// The logits of what follows the prompt: [1, V].
at::Tensor Generator::read_prompt(std::span<const int32_t> prompt, int64_t slot) {
  const auto start = Clock::now();
  cache_.lengths[slot].zero_();
  at::Tensor logits = logits_after(prompt, slots(slot, 1));
  times_.prompt_tokens += static_cast<int64_t>(prompt.size());
  times_.prompt_seconds += seconds_since(start);
  return logits;
}

// What follows each sequence, side by side on the lane's threads.
std::vector<SampledToken> Generator::draw(std::span<const Sequence> sequences,
                                          const at::Tensor& logits,
                                          const GenerationOptions& options,
                                          uint64_t first_sequence) {
  // As long as a second thread takes to begin.
  constexpr int64_t kGrain = int64_t{1} << 13;
  std::vector<SampledToken> drawn(sequences.size());
  lanes_.run([&](int lane) {
    if (lane != 0) return;
    at::parallel_for(0, logits.size(0), kGrain / logits.size(1) + 1,
                     [&](int64_t begin, int64_t end) {
                       for (int64_t row = begin; row < end; ++row) {
                         const Sequence& sequence = sequences[static_cast<size_t>(row)];
                         drawn[static_cast<size_t>(row)] =
                             sample(logits[row], sequence.text, options.sampling,
                                    first_sequence + sequence.index, sequence.drawn);
                       }
                     });
  });
  return drawn;
}

GenerationCache Generator::slots(int64_t first, int64_t count) const {
  GenerationCache view{.layers = {}, .lengths = cache_.lengths.narrow(0, first, count)};
  for (const kernel::KeyValueCache& layer : cache_.layers)
    view.layers.push_back(
        {layer.keys.narrow(0, first, count), layer.values.narrow(0, first, count)});
  return view;
}

void Generator::move_slot(int64_t from, int64_t to) {
  const auto length = cache_.lengths[from].item<int64_t>();
  for (const kernel::KeyValueCache& layer : cache_.layers)
    for (const at::Tensor& x : {layer.keys, layer.values})
      x[to].narrow(1, 0, length).copy_(x[from].narrow(1, 0, length));
  cache_.lengths[to].copy_(cache_.lengths[from]);
}

// Of the last token of each slot; the slots read as many tokens each.
at::Tensor Generator::logits_after(std::span<const int32_t> tokens, GenerationCache cache) {
  const int64_t sequences = cache.lengths.size(0),
                n = static_cast<int64_t>(tokens.size()) / sequences;
  const at::Tensor places =
      (cache.lengths.unsqueeze(1) + at::arange(n, at::TensorOptions(at::kLong)))
          .to(at::kInt)
          .view({-1});
  StepInput input;
  input.micro_batches.push_back(
      {{"tokens", ids_of(tokens, family_.vocab())},
       {"positions", places},
       {"rows", at::arange(n - 1, sequences * n, n, at::TensorOptions(at::kLong))}});
  input.want = Want::logits;
  input.cache = &cache;
  StepResult result = executor_->run(input);
  cache.lengths.add_(n);  // a view of cache_'s
  return result.results[0].at("logits");
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
