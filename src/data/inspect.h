// A corpus and its samples as a person sees them.
//
// Threads: pure functions. Text that comes out of a corpus is made safe for a terminal: control
// characters are shown as symbols, and what is not UTF-8 as U+FFFD.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/samples.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

// Inputs of a sample that follow one another in one document.
struct SampleSegment {
  const CorpusFile* file;
  uint64_t line;             // of a .jsonl file, or 0
  uint64_t first_token;      // counted from the document's first
  uint64_t document_tokens;  // with the end-of-text token
  int64_t begin, end;        // places in the sample
  std::string text;          // their bytes; may begin or end inside a character
  bool ends;                 // the last of them is the end-of-text token
};

struct SampleView {
  uint64_t index;
  Split split;
  TextSamples::Place place;
  TextSample sample;
  std::vector<SampleSegment> segments;
};

// REQUIRES: `samples` is of `corpus`, `tokenizer` is the corpus's. InputError: there is no such
// sample in the held-out split; the corpus is damaged. `corpus` outlives the result.
SampleView view_sample(const Corpus& corpus, const TextSamples& samples, const Tokenizer& tokenizer,
                       uint64_t index);

// The text with a line at each boundary of documents; `color`: with ANSI colours.
std::string sample_text(const SampleView& view, bool color);
// One JSON object: the sample's fields, its place, and its segments with their texts. On one line
// unless it is to be read by people.
std::string sample_json(const SampleView& view, bool indented);

// Sizes, sources, licences, and what was left out.
std::string corpus_text(const Corpus& corpus);
std::string corpus_json(const Corpus& corpus);

}  // namespace trireme
