// A prepared corpus: the tokens of many documents, memory-mapped, with a manifest that says where
// each came from.
//
// A corpus is a directory `<cache>/<16 hex digits>`; the name is a hash of everything that went
// into it, so the same inputs find the same directory and building again does nothing. corpus.md
// beside this file draws the format.
//
// Words. A *document* is one text file or one line of a .jsonl file; it is encoded by itself and
// followed by the end-of-text token. A *part* is what is shuffled together: the entries of a blend
// each have their own, otherwise there is one. A *split* is train or held_out: a document belongs
// to the one that the hash of its content says, so equal documents are never on both sides. A
// *stream* is the documents of one (part, split), one behind the other in an order given by their
// hashes.
//
// Threads:  an open corpus is read-only; any thread.
// Errors:   InputError for what the user gave (a missing file, a binary one, an empty corpus, a
//           directory that is no corpus or is damaged), RunError for what the world does (full
//           disk).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace trireme {

enum class Split { train, held_out };
const char* name_of(Split split);  // "train", "held_out"

// Where one entry of `data.source` finds its documents.
struct SourceOptions {
  std::string path;              // file, folder, glob or named source (source.h)
  std::string field = "text";    // of the objects in .jsonl files
  std::optional<double> weight;  // of the blend; all entries have one, or none
};

struct CorpusOptions {
  std::vector<SourceOptions> sources;
  // Exactly one of the two:
  int64_t train_vocab = 0;  // train a byte-level BPE of so many ids on the train split
  fs::path tokenizer;       // or: a tokenizer.json
  double held_out = 0.05;   // share of the documents, [0, 1)
  fs::path cache;           // holds the corpora; made when missing
  int threads = 1;          // changes nothing but the time
  uint64_t document_max_bytes = uint64_t{1}
                                << 30;  // a longer document is an error: it has to be in memory
};

// One document of a stream, as documents.bin holds it.
struct DocumentRecord {
  uint64_t first_token;  // counted from the stream's first
  uint64_t tokens;       // with the end-of-text token
  uint64_t bytes;        // of text
  uint64_t hash;         // of the content
  uint64_t line;         // 1, 2, … in a .jsonl file, 0: the whole file
  uint64_t file;         // index into files()
};

// The ids of one stream, 2 or 4 bytes each.
class TokenSpan {
 public:
  TokenSpan() = default;
  TokenSpan(const std::byte* data, uint64_t size, bool wide)
      : data_(data), size_(size), wide_(wide) {}
  uint64_t size() const { return size_; }
  int32_t operator[](uint64_t i) const {  // REQUIRES: i < size()
    return wide_ ? reinterpret_cast<const int32_t*>(data_)[i]
                 : reinterpret_cast<const uint16_t*>(data_)[i];
  }

 private:
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  bool wide_ = false;
};

struct CorpusSource {
  std::string path;     // as the recipe names it
  std::string origin;   // where that was found
  std::string licence;  // SPDX name, or empty: not known
  uint64_t part = 0;
  // Files that were found in a folder or by a glob and left out, and documents without a byte.
  uint64_t skipped_binary = 0, skipped_encoding = 0, skipped_empty = 0, skipped_twice = 0;
};

struct CorpusFile {
  std::string name;  // the source's path, and the path below it
  uint64_t source = 0;
  std::string xxh128;                  // 32 hex digits, of the file's bytes as they lie on disk
  uint64_t bytes = 0;                  // on disk
  uint64_t documents = 0, tokens = 0;  // in either split
};

class Corpus {
 public:
  // Checks the structure (format, sizes of the files, bounds of the streams), not the checksums.
  // Cost: the manifest is parsed, everything else is mapped.
  static Corpus open(const fs::path& directory);

  // Reads every byte and compares the checksums. InputError names the file that differs.
  void verify() const;

  const fs::path& directory() const { return directory_; }
  std::string id() const { return directory_.filename().string(); }
  fs::path tokenizer_path() const { return directory_ / "tokenizer.json"; }
  int64_t vocab() const { return static_cast<int64_t>(token_bytes_.size()); }  // ids are below it
  int32_t end_of_text() const { return end_of_text_; }
  uint32_t bytes_of(int32_t token) const {
    return token_bytes_[token];
  }  // of text; 0 for end of text

  uint64_t parts() const { return streams_.size() / 2; }
  TokenSpan tokens(uint64_t part, Split split) const;
  std::span<const DocumentRecord> documents(uint64_t part, Split split) const;
  uint64_t text_bytes(uint64_t part, Split split) const;

  const std::vector<CorpusSource>& sources() const { return sources_; }
  const std::vector<CorpusFile>& files() const { return files_; }

 private:
  struct Stream {
    uint64_t first_token, tokens, first_document, documents, bytes;
  };
  Corpus() = default;

  fs::path directory_;
  std::optional<MappedFile> tokens_file_, documents_file_, token_bytes_file_;
  std::span<const uint32_t> token_bytes_;
  int32_t end_of_text_ = 0;
  bool wide_ = false;
  std::vector<Stream> streams_;  // part 0 train, part 0 held out, part 1 train, …
  std::vector<CorpusSource> sources_;
  std::vector<CorpusFile> files_;
  std::vector<std::pair<std::string, uint32_t>> checksums_;
};

// What the build is at, for a person: the stage, and how far it is in bytes. Never two calls at
// once.
using BuildProgress = std::function<void(std::string_view stage, uint64_t done, uint64_t total)>;
BuildProgress log_build_progress();  // shows it by base/log.h

struct BuildResult {
  fs::path directory;
  bool built = false;  // false: it was there
};

// Makes the corpus of these options unless it is there. The result does not depend on the number of
// threads. Two builders of one corpus: the second waits for the first. After a kill nothing stands
// under the final name, and the next build of that corpus removes what was left.
BuildResult build_corpus(const CorpusOptions& options, const BuildProgress& progress = {});

// build_corpus(), then open().
Corpus open_or_build(const CorpusOptions& options, const BuildProgress& progress = {});

}  // namespace trireme
