// Generates token ids from prompts with a key/value cache, several sequences at a time; scores
// texts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "infer/sampler.h"
#include "model/language_model.h"

namespace trireme {

struct GenerationOptions {
  SamplingOptions sampling;
  int64_t max_tokens = 64;          // generated at most, of each sequence; at least 1
  std::vector<int32_t> end_tokens;  // generation ends with any of them; it is not returned
};

struct Generated {
  enum class Finish { end, length, caller };  // an end token; no room left; the listener said so
  std::vector<SampledToken> tokens;
  Finish finish = Finish::length;

  std::vector<int32_t> ids() const;
};

// Since the generator was made.
struct GenerationTimes {
  int64_t prompt_tokens = 0;
  double prompt_seconds = 0;  // reading them; drawing what follows is not in it
  int64_t steps = 0, step_tokens = 0;
  double step_seconds = 0;  // of one token for each sequence of the batch: passes and draws
};

// The lanes that suit it: one, whose operators use `threads` threads, for a step of generation is
// one micro-batch.
std::unique_ptr<Lanes> generation_lanes(int threads);

// Ranks of a sharded model all call it alike: weights are gathered block by block.
// Threads: one caller. Cost: each prompt in one pass, then one pass a token for the whole batch,
// which up to eight sequences reads the weights once and gives each sequence the bits that it has
// alone.
class Generator {
 public:
  // All arguments outlive it. `model` was built by `family` for `capacity` positions. The cache
  // holds `batch` sequences of `capacity` tokens, prompt and what follows.
  Generator(const LanguageModel& family, const Model& model, Parameters& parameters, Lanes& lanes,
            RankGroups groups, kernel::Mode mode, int64_t capacity, int64_t batch = 1);
  ~Generator();

  // Told as it happens, on the caller's thread.
  struct Listener {
    // A token of prompt `index`; false ends that sequence.
    std::function<bool(size_t index, const SampledToken& token)> on_token;
    // Prompt `index` is complete.
    std::function<void(size_t index, const Generated& generated)> on_done;
  };

  // What follows each prompt, in their order. Any number of prompts: when a sequence ends, the next
  // prompt takes its place in the batch. Random numbers are those of sequence `first_sequence` +
  // index, whatever the batch. InputError if a prompt is empty or leaves no room for a token.
  std::vector<Generated> generate(std::span<const std::vector<int32_t>> prompts,
                                  const GenerationOptions& options, uint64_t first_sequence = 0,
                                  const Listener& listener = {});

  const GenerationTimes& times() const { return times_; }

 private:
  struct Sequence;
  at::Tensor read_prompt(std::span<const int32_t> prompt, int64_t slot);
  std::vector<SampledToken> draw(std::span<const Sequence> sequences, const at::Tensor& logits,
                                 const GenerationOptions& options, uint64_t first_sequence);
  at::Tensor logits_after(std::span<const int32_t> tokens, GenerationCache cache);
  GenerationCache slots(int64_t first, int64_t count) const;
  void move_slot(int64_t from, int64_t to);

  const LanguageModel& family_;
  Lanes& lanes_;
  int64_t capacity_, batch_;
  GenerationCache cache_;
  std::unique_ptr<Executor> executor_;
  GenerationTimes times_;
};

// The natural logarithm of each token's probability given those before it; the first has none, so
// there is one fewer than tokens. Without a cache. InputError for an id outside the vocabulary.
class Scorer {
 public:
  Scorer(const LanguageModel& family, const Model& model, Parameters& parameters, Lanes& lanes,
         RankGroups groups, kernel::Mode mode);
  ~Scorer();
  std::vector<double> log_probs(std::span<const int32_t> tokens);

 private:
  const LanguageModel& family_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace trireme
