// Makes a prepared corpus out of files.
//
//   build_corpus({.sources = {{"python-stdlib"}}, .train_vocab = 4096, .cache = "data"})
//
// The corpus is the directory `<cache>/<16 hex digits>`, its name a hash of every file's name and
// content, the options that matter, and the tokenizer. So the same inputs find the same directory,
// and building again does nothing. To be sure of that without reading every file again, the cache
// also remembers (`<cache>/seen`) which sizes, times and inodes the files had when they were
// hashed; files that were touched less than two seconds before that are not trusted to their times.
//
// Threads: one call at a time in a thread; builders of the same corpus in any threads or processes
//          wait for one another.
// Errors:  InputError for what the user gave: a missing, binary or damaged file, an empty corpus, a
//          split without a document, a cache that cannot be written. RunError for what the world
//          does: a full disk, a file that changes meanwhile. Nothing is ever half-written under the
//          final name; what a kill leaves behind is removed by the next build in the same cache.
// Memory:  80 bytes a document, up to 256 MB of text to train a tokenizer on, one document a
// thread. Disk:    twice the tokens while building.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"
#include "data/corpus.h"
#include "data/source.h"

namespace trireme {

struct CorpusOptions {
  std::vector<SourceOptions> sources;
  // Exactly one of the two:
  int64_t train_vocab = 0;  // train a byte-level BPE of so many ids on the train split
  fs::path tokenizer;       // or: a tokenizer.json that has an end-of-text token
  // Tokens before and after each document, as the tokenizer spells them. Empty: none before, and
  // after it the tokenizer's own end of text.
  std::string begin_of_text, end_of_text;
  double held_out = 0.05;                           // share of the documents, [0, 1)
  fs::path cache;                                   // holds the corpora; made when missing
  int threads = 1;                                  // changes nothing but the time
  uint64_t document_max_bytes = uint64_t{1} << 30;  // a longer one is an error
};

// For a person: the stage, and how far it is, in a unit of its own. Never two calls at once.
using BuildProgress = std::function<void(std::string_view stage, uint64_t done, uint64_t total)>;
BuildProgress log_build_progress();  // shows it by base/log.h

struct BuildResult {
  fs::path directory;
  bool built = false;  // false: it was there
};

// Makes the corpus of these options unless it is there, and says on the log what it holds and what
// it left out.
BuildResult build_corpus(const CorpusOptions& options, const BuildProgress& progress = {});

// build_corpus(), then Corpus::open(), and verify() where that takes no time (below 256 MB).
Corpus open_or_build(const CorpusOptions& options, const BuildProgress& progress = {});

}  // namespace trireme
