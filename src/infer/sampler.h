// Which token comes next: exact sampling from filtered logits.
//
// The filters apply in Hugging Face's order: temperature, top-k, top-p, min-p. Each keeps at least
// one token. The random number is a function of (seed, sequence, place), so a text does not depend
// on what else is generated beside it. All arithmetic is in double. Any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace trireme {

struct SamplingOptions {
  double temperature = 1;  // 0: the most probable token, ties to the lower id
  int64_t top_k = 0;       // keep the k most probable; 0: all
  double top_p = 1;        // keep the fewest most probable tokens whose probabilities reach p
  double min_p = 0;        // keep tokens of at least this share of the greatest probability
  uint64_t seed = 0;
};

// InputError naming the option that is out of range.
void check(const SamplingOptions& options);

// The distribution that is sampled from: probabilities of all V tokens, filtered ones 0. logits:
// [V].
std::vector<double> sampling_distribution(const at::Tensor& logits, const SamplingOptions& options);

int32_t sample(const at::Tensor& logits, const SamplingOptions& options, uint64_t sequence,
               uint64_t place);

}  // namespace trireme
