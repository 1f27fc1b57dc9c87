// What a checkpoint holds: the records of its files, tensors and chunks, and their text.
//
// docs/checkpoint-format.md draws the format. Invariants that parse_manifest() and commit() check,
// and readers rely on:
// 1. The chunks of a tensor cover each of its elements exactly once.
// 2. Each byte of each file is in the file's head or in exactly one chunk, and both carry
// checksums.
// 3. File names are plain names. Values; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "layout/dtype.h"
#include "layout/slice.h"

namespace trireme {

// The format that this code writes; it reads this one and the one before it.
constexpr int kManifestVersion = 1;
inline constexpr std::string_view kManifestName = "manifest.json";

// One rank's piece of a tensor: `bytes` bytes at `offset` of a file hold the elements of `slice`.
struct ChunkRecord {
  std::string file;
  int64_t offset = 0, bytes = 0;
  Slice slice;
  std::vector<uint32_t> crc32c;  // one for each block of `block_bytes`, the last one shorter
};

struct TensorRecord {
  std::string name;
  std::string kind;  // "weight", "moment", …: [a-z_]+
  DType dtype = DType::float32;
  Shape shape;
  std::vector<ChunkRecord> chunks;

  int64_t nbytes() const { return numel_of(shape) * bytes_of(dtype); }
};

// `head_bytes` leading bytes, with a checksum of their own, then chunks: the safetensors header of
// a chunk file, or the whole of an attached file.
struct FileRecord {
  std::string name;
  int64_t bytes = 0, head_bytes = 0;
  uint32_t head_crc32c = 0;
};

// Everything about a moment of a run that is no tensor. Random numbers need no state: they are
// functions of the seed and the step.
struct CheckpointInfo {
  int64_t step = 0;
  int64_t samples = 0;  // consumed: the data position
  int64_t tokens = 0;   // consumed
  uint64_t seed = 0;
  std::string recipe;                           // frozen, TOML
  std::string layout;                           // for people: "replica=2,shard=2"
  std::string parent;                           // the checkpoint that the run resumed from
  std::map<std::string, std::string> software;  // name to version
  std::map<std::string, double> metrics;        // finite
  std::map<std::string, std::string> extra;     // small state of the caller's
};

bool valid_kind(std::string_view kind);  // [a-z_]+

// What was written: by one rank, or by all.
struct Records {
  int64_t block_bytes = 0;
  std::vector<FileRecord> files;
  std::vector<TensorRecord> tensors;
};

// Both lists sorted by name.
struct Manifest : Records {
  CheckpointInfo info;

  const TensorRecord* find(std::string_view name) const;
  const FileRecord* find_file(std::string_view name) const;
};

// Sorts files and tensors by name and checks the invariants. Throws InternalError naming what is
// wrong: a caller handed over a chunk twice, or not at all.
std::string format_manifest(Manifest& manifest);

// Trusts nothing: the digest first, then every size, name and slice. Throws DamagedError with
// `path` and the reason; InputError for a format that is newer or too old.
Manifest parse_manifest(std::string_view text, const std::string& path);

// The reason why the invariants do not hold, or "".
std::string problem_of(const Manifest& manifest);

// The reason why `slice` is no slice of a tensor of `shape`, or "".
std::string slice_problem(const Slice& slice, const Shape& shape);

// Records as text and back, to send them from rank to rank. InternalError if it is not such text.
std::string serialize_records(const Records& records);
Records parse_records(std::string_view text);

}  // namespace trireme
