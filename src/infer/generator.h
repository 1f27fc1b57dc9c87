// Generates token ids from a prompt, one sequence at a time, with a key/value cache.
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
  int64_t max_tokens = 64;          // generated at most
  std::vector<int32_t> end_tokens;  // generation ends with any of them; it is not returned
};

// Ranks of a sharded model all call it alike: weights are gathered block by block.
// Threads: one caller. Cost: the prompt in one pass, then one pass a token.
class Generator {
 public:
  // All arguments outlive it. `model` was built by `family` for the longest text (prompt and what
  // follows).
  Generator(const LanguageModel& family, const Model& model, Parameters& parameters, Lanes& lanes,
            RankGroups groups, kernel::Mode mode, int64_t capacity);
  ~Generator();

  // Returns what follows the prompt. on_token sees each id as it comes; false ends the generation.
  // `sequence` sets random numbers of several texts apart. InputError if the prompt is empty or
  // leaves no room for a token.
  std::vector<int32_t> generate(std::span<const int32_t> prompt, const GenerationOptions& options,
                                uint64_t sequence,
                                const std::function<bool(int32_t)>& on_token = {});

 private:
  at::Tensor logits_after(std::span<const int32_t> tokens);

  const LanguageModel& family_;
  int64_t capacity_;
  GenerationCache cache_;
  std::unique_ptr<Executor> executor_;
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
