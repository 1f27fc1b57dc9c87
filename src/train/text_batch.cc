#include "train/text_batch.h"

#include <ATen/ops/full.h>

#include <algorithm>

// Shapes: B samples, S tokens a sample, T = B * S.

namespace trireme {

Batch text_batch(const TextSamples& samples, uint64_t end, uint64_t first, int64_t count) {
  const int64_t s = samples.options().sequence;
  at::Tensor tokens = at::full({count * s}, 0, at::kLong);         // [T]
  at::Tensor labels = at::full({count * s}, kNoLabel, at::kLong);  // [T]
  at::Tensor positions = at::full({count * s}, 0, at::kInt);       // [T]
  at::Tensor documents = at::full({count, s}, 0, at::kInt);        // [B, S]
  int64_t valid = 0, label_bytes = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (first + static_cast<uint64_t>(i) >= end) break;
    const TextSample sample = samples.sample(first + static_cast<uint64_t>(i));
    std::ranges::copy(sample.tokens, tokens.mutable_data_ptr<int64_t>() + i * s);
    std::ranges::copy(sample.labels, labels.mutable_data_ptr<int64_t>() + i * s);
    std::ranges::copy(sample.positions, positions.mutable_data_ptr<int32_t>() + i * s);
    std::ranges::copy(sample.documents, documents.mutable_data_ptr<int32_t>() + i * s);
    valid += sample.valid;
    label_bytes += sample.label_bytes;
  }
  return {{"tokens", tokens},
          {"labels", labels},
          {"positions", positions},
          {"documents", documents},
          {"valid", at::full({}, valid, at::kLong)},
          {"label_bytes", at::full({}, label_bytes, at::kLong)}};
}

}  // namespace trireme
