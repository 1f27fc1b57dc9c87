// Samples of text as the batch that blocks of a language model read.
#pragma once

#include "data/samples.h"
#include "nn/block.h"

namespace trireme {

// Samples [first, first + count): "tokens", "labels" int64 [T], "positions" int32 [T], "documents"
// int32 [B, S], and the scalars "valid" (labels) and "label_bytes". Those from number `end` on are
// there and have no labels.
Batch text_batch(const TextSamples& samples, uint64_t end, uint64_t first, int64_t count);

}  // namespace trireme
