// Reads, splits, encodes and writes a corpus; corpus_build.h decides when.
#pragma once

#include <optional>
#include <string>

#include "data/corpus_build.h"
#include "data/corpus_inputs.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

// Makes the directory `<cache>/<id>` by way of `<cache>/<id>.partial`, which must not be there.
// Without a tokenizer one is trained. REQUIRES: the caller holds the lock on this id;
// hash_inputs().
void write_corpus(const CorpusOptions& options, const CorpusInputs& inputs, const std::string& id,
                  std::optional<Tokenizer> tokenizer, const BuildProgress& progress);

}  // namespace trireme
