// Learns a byte-level BPE tokenizer from text.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace trireme {

struct BpeTraining {
  int32_t vocab = 0;  // tokens in all: special ones, 256 bytes, merges. Fewer if merges run out.
  std::vector<std::string> special_tokens = {"<|endoftext|>"};  // they get the ids 0, 1, …
  int64_t min_frequency = 0;  // a pair that is seen less often is not merged
  int threads = 1;
  // Called now and then with merges found and wanted.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// GPT-2 style: text is cut by GPT-2's pattern, words are byte sequences, and the most frequent pair
// of neighbours is merged again and again; of equally frequent pairs the one whose ids are smaller
// goes first. Finds the merges that `tokenizers` finds with BpeTrainer and
// ByteLevel(add_prefix_space=False).
//
// The result does not depend on the number of threads nor on the order of the documents. Documents
// that are no UTF-8 are taken as encode() takes them. InputError if `vocab` has no room for the
// special tokens and 256 bytes.
// Cost: 10 MB of source code, 8,192 tokens: about 1 s; memory about that of the distinct words.
Tokenizer train_bpe(std::span<const std::string_view> documents, const BpeTraining& options);

}  // namespace trireme
