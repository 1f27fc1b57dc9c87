// Which token comes next: exact sampling from filtered logits.
//
// The filters apply in the order of Hugging Face's generate() and keep what its processors keep:
// repetition penalty, temperature, top-k, top-p, min-p. The random number is a function of (seed,
// sequence, place), so a text does not depend on what else is generated beside it. All arithmetic
// is in double. Any thread. Cost: a few passes over the vocabulary; top-p sorts as much of it as
// its tokens take.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

struct SamplingOptions {
  double temperature = 1;  // 0: the most probable token, ties to the lower id
  int64_t top_k = 0;       // keep the k most probable, and all that equal the last; 0: all
  double top_p = 1;        // keep the fewest most probable tokens whose probabilities reach p
  double min_p = 0;        // keep tokens of at least this share of the greatest probability
  // Logits of tokens that the text holds already: divided by it if positive, else multiplied.
  double repetition_penalty = 1;
  uint64_t seed = 0;
};

// InputError naming the option that is out of range.
void check(const SamplingOptions& options);

// The distribution that is sampled from: probabilities of all V tokens, filtered ones 0. logits:
// [V]; `text`: what was read and generated so far, for the penalty. RunError unless logits are
// finite or minus infinity.
std::vector<double> sampling_distribution(const at::Tensor& logits, std::span<const int32_t> text,
                                          const SamplingOptions& options);

struct SampledToken {
  int32_t id = 0;
  double log_prob = 0;           // natural logarithm of the model's own probability: no filter
  double sampling_log_prob = 0;  // of the probability that it was drawn with; 0 when greedy
};

SampledToken sample(const at::Tensor& logits, std::span<const int32_t> text,
                    const SamplingOptions& options, uint64_t sequence, uint64_t place);

}  // namespace trireme
