// The files that a corpus is made of, and the names that follow from them.
//
// Threads: plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus_build.h"
#include "data/document_reader.h"
#include "data/source.h"

namespace trireme {

struct CorpusInputs {
  std::vector<SourceListing> listings;   // one for each of options.sources
  std::vector<uint64_t> part_of_source;  // a blend keeps its entries apart
  std::vector<InputFile> files;          // of all listings, pointing into them and the options
  std::vector<uint64_t> source_of_file;
  std::optional<SourceFile> tokenizer;  // the tokenizer.json, if one is named
  std::vector<std::string> hashes;      // XXH3-128 of each file; empty before hash_inputs()
  uint64_t bytes = 0;                   // of all files, on disk

  uint64_t part_of_file(uint64_t file) const { return part_of_source[source_of_file[file]]; }
};

// The options outlive the result. InputError: see list_sources(); weights that only some entries
// have.
CorpusInputs list_inputs(const CorpusOptions& options);

// Reads every file and fills in `hashes`, on options.threads threads.
void hash_inputs(const CorpusOptions& options, CorpusInputs& inputs, const BuildProgress& progress);

// 16 hex digits: the name of the corpus. `fingerprint` is of the tokenizer that the options name, 0
// where one is trained: that one follows from the rest. REQUIRES: hash_inputs().
std::string corpus_id(const CorpusOptions& options, const CorpusInputs& inputs,
                      uint64_t fingerprint);

// 32 hex digits: as corpus_id(), but of sizes, inodes and times instead of contents. Two inputs
// with one such name have the same content if trusts_times() held when it was hashed.
std::string stat_id(const CorpusOptions& options, const CorpusInputs& inputs);

// Whether all files were left alone for two seconds before `now_ns` (since 1970): time stamps of
// file systems are that coarse, and a file that is written again within one tick looks the same.
bool trusts_times(const CorpusInputs& inputs, int64_t now_ns);

}  // namespace trireme
