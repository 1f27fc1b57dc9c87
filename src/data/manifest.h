// What a prepared corpus says about itself: manifest.json.
//
// Threads: plain values. docs/data.md draws the format.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class Split { train, held_out };
const char* name_of(Split split);  // "train", "held_out"

struct CorpusSource {
  std::string path;     // as the recipe names it
  std::string origin;   // where that was found
  std::string licence;  // SPDX name, or empty: not known
  std::string field;    // of the objects in its .jsonl files
  uint64_t part = 0;
  // What was found and left out: files that are no text by their name, files that an earlier source
  // has; then documents that are binary, that are not UTF-8, that have no byte.
  uint64_t other_kinds = 0, twice = 0, binary = 0, encoding = 0, empty = 0;
};

struct CorpusFile {
  std::string name;  // the source's path, and the path below it
  uint64_t source = 0;
  std::string xxh128;   // 32 hex digits, of the file's bytes as they lie on disk
  uint64_t bytes = 0;   // on disk
  uint64_t tokens = 0;  // with the end-of-text tokens
  uint64_t documents = 0, held_out_documents = 0;  // the former counts both splits
  uint64_t left_out_documents = 0;                 // binary or not UTF-8
};

// The documents of one part and split, as ranges of tokens.bin and documents.bin.
struct CorpusStream {
  uint64_t first_token = 0, tokens = 0;
  uint64_t first_document = 0, documents = 0;
  uint64_t text_bytes = 0;
};

struct CorpusManifest {
  std::string id;  // the directory's name
  double held_out = 0;
  std::string tokenizer;                 // "bpe, trained on the train split" or a path
  std::string fingerprint;               // of it, 16 hex digits
  int64_t vocab = 0;                     // ids are below it
  std::optional<int64_t> begin_of_text;  // before each document; most tokenizers have none
  int64_t end_of_text = 0;               // after each
  int64_t token_bytes = 2;               // 2 or 4: of an id in tokens.bin
  std::vector<CorpusStream> streams;     // part 0 train, part 0 held out, part 1 train, …
  std::vector<CorpusSource> sources;
  std::vector<CorpusFile> files;
  struct Stored {
    std::string name;
    uint64_t bytes = 0;
    uint32_t crc32c = 0;
  };
  std::vector<Stored> stored;  // the other files of the directory
};

std::string to_json(const CorpusManifest& manifest);

// InputError, beginning with `origin`: no JSON, another format or version, a member that is missing
// or of another type, or ranges that do not lie behind one another.
CorpusManifest parse_manifest(std::string_view json, std::string_view origin);

}  // namespace trireme
