// From a recipe of a text task to its corpus and samples: what a trainer needs of this folder.
//
//   const Corpus corpus = open_or_build(corpus_options(recipe), log_build_progress());
//   const TextSamples train(corpus, sample_options(recipe, Split::train));
//   const TextSamples held_out(corpus, sample_options(recipe, Split::held_out));
//
// Keys read: data.source (path, weight, field), data.field, data.tokenizer or data.tokenizer.train
// and .vocab, data.bos, data.eos, data.held_out, data.cache, data.sequence,
// data.document_attention, data.document_positions, run.seed, run.threads. Paths are relative to
// the working directory. A recipe that names no tokenizer leaves both choices open, for the caller
// to fill in.
#pragma once

#include "base/recipe/recipe.h"
#include "data/corpus_build.h"
#include "data/samples.h"

namespace trireme {

// What data.bos says where no token stands before a document.
inline constexpr std::string_view kNoToken = "none";

CorpusOptions corpus_options(const Recipe& recipe);
TextSampleOptions sample_options(const Recipe& recipe, Split split);

}  // namespace trireme
