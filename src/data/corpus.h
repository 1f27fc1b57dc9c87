// A prepared corpus: the tokens of many documents, memory-mapped, with a manifest that says where
// each came from.
//
// A corpus is a directory `<cache>/<16 hex digits>`; the name is a hash of everything that went
// into it (corpus_build.h makes it). docs/data.md draws the format.
//
// Words. A *document* is one text file or one line of a .jsonl file; it is encoded by itself and
// followed by the end-of-text token; where the tokenizer has a begin-of-text token, that stands
// before it. A *part* is what is shuffled together: the entries of a blend
// each have their own, otherwise there is one. A *split* is train or held_out: a document belongs
// to the one that the hash of its content says, so equal documents are never on both sides. A
// *stream* is the documents of one (part, split), one behind the other in an order given by their
// hashes.
//
// Threads: an open corpus is read-only; any thread. It may be moved: spans stay valid.
// Errors:  InputError when the directory is no corpus or is damaged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/files.h"
#include "data/manifest.h"

namespace trireme {

// One document of a stream, as documents.bin holds it.
struct DocumentRecord {
  uint64_t first_token;  // counted from the stream's first
  uint64_t tokens;       // with the tokens that begin and end a text
  uint64_t bytes;        // of text
  uint64_t hash;         // of the text, XXH3-64
  uint64_t line;         // 1, 2, … in a .jsonl file, 0: the whole file
  uint64_t file;         // index into manifest().files
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

class Corpus {
 public:
  // Checks the structure (format, sizes of the files, bounds of the streams), not the checksums.
  // Cost: the manifest is parsed, everything else is mapped.
  static Corpus open(const fs::path& directory);

  // Reads every byte and compares checksums, then every document's bounds. InputError names what
  // differs. Cost: about 10 GB/s of what is in memory.
  void verify() const;

  const fs::path& directory() const { return directory_; }
  const CorpusManifest& manifest() const { return manifest_; }
  fs::path tokenizer_path() const { return directory_ / "tokenizer.json"; }
  int64_t vocab() const { return manifest_.vocab; }
  int32_t end_of_text() const { return static_cast<int32_t>(manifest_.end_of_text); }
  std::optional<int32_t> begin_of_text() const {
    return manifest_.begin_of_text ? std::optional(static_cast<int32_t>(*manifest_.begin_of_text))
                                   : std::nullopt;
  }
  // Bytes of text that an id stands for, by id; 0 for special tokens.
  std::span<const uint32_t> bytes_by_token() const;

  uint64_t parts() const { return manifest_.streams.size() / 2; }
  const CorpusStream& stream(uint64_t part, Split split) const;  // REQUIRES: part < parts()
  TokenSpan tokens(uint64_t part, Split split) const;
  std::span<const DocumentRecord> documents(uint64_t part, Split split) const;

 private:
  Corpus(fs::path directory, CorpusManifest manifest);

  fs::path directory_;
  CorpusManifest manifest_;
  MappedFile tokens_, documents_, token_bytes_;
};

}  // namespace trireme
