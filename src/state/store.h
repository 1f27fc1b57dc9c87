// Writing a checkpoint: each rank its own files, then one atomic commit.
//
//   rank 0:     PendingCheckpoint pending = begin_checkpoint(storage, run / "checkpoints", step);
//   each rank:  RankWriter writer(storage, pending.partial, rank, ranks);
//               writer.add({.name = …, .kind = "weight", …, .slice = mine, .data = bytes});  // …
//               Records part = writer.finish();         // writes, checksums, syncs
//   rank 0:     commit_checkpoint(storage, pending, parts_of_all_ranks, info, attachments);
//   or:         abandon_checkpoint(storage, pending);   // when any rank failed
//
// Everything is written into `step-00000100.partial`; commit writes the manifest last, syncs, and
// renames the directory: before the rename nothing is readable, after it everything is durable.
// When the step is committed already, the new one takes a suffix (`step-00000100-2`) and the old
// one is removed after the commit. A replicated tensor is added by one rank: the caller decides by
// ownership. Between processes, the partial path and the parts (serialize_records) travel as text.
//
// Fenced by O_EXCL: a stale writer's file makes the save fail, it is never mixed in. Memory: a
// block. Threads: one per RankWriter; each of the four functions is called by one thread. Errors:
// StorageError; the last good checkpoint stays as it was. No retry of a failed sync: the save is
// abandoned.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "state/manifest.h"
#include "state/storage.h"

namespace trireme {

// A checksum covers a block of this many bytes, the unit that a reader of a slice has to read. It
// stays in a core's second-level cache, and the checksums of a terabyte are 8 MB of manifest.
constexpr int64_t kBlockBytes = 1 << 20;

struct PendingCheckpoint {
  fs::path partial;  // where ranks write
  fs::path target;   // what it will be called
  int64_t step = 0;
};

// Makes the directory of checkpoints if it is missing, and an empty partial one in it. Leftovers of
// the same name are removed. `expected_bytes`, if given, must be free with a tenth to spare: else
// StorageError (ENOSPC) before anything is written.
PendingCheckpoint begin_checkpoint(Storage& storage, const fs::path& checkpoints, int64_t step,
                                   int64_t expected_bytes = 0);

// The same for a checkpoint that is no step of a run: `target` must not exist.
PendingCheckpoint begin_checkpoint_at(Storage& storage, const fs::path& target);

// A part of a global tensor, and its bytes: row-major elements of `slice`, in native order.
struct TensorChunk {
  std::string name;  // global: Hugging Face's for weights, "adamw.m/<weight>" for moments
  std::string kind;  // "weight" and "moment" go to model*.safetensors and optimizer*.safetensors,
                     // another kind to <kind>*.safetensors; [a-z_]+
  DType dtype = DType::float32;
  Shape shape;  // global
  Slice slice;
  std::span<const std::byte> data;  // alive and unchanged until finish() returns
  // In place of data: fills `out` with the bytes from `first_byte` on. Called in order, in blocks.
  std::function<void(int64_t first_byte, std::span<std::byte> out)> produce = {};
};

class RankWriter {
 public:
  RankWriter(Storage& storage, fs::path partial, int rank, int ranks,
             int64_t block_bytes = kBlockBytes);  // REQUIRES: a multiple of 8

  // Takes the chunk, writes nothing yet: a file's header comes before its bytes. An empty slice is
  // left out. REQUIRES: data fits slice and dtype, slice fits shape.
  void add(TensorChunk chunk);

  // Writes the files of this rank, each with its checksums, and syncs them. Once.
  Records finish();

 private:
  void write_file(const std::string& kind, std::vector<TensorChunk*> chunks, Records& part);

  Storage& storage_;
  fs::path partial_;
  int rank_, ranks_;
  int64_t block_bytes_;
  std::vector<TensorChunk> chunks_;
};

// Attached small files by name (config.json, tokenizer.json): part of the checkpoint, checksummed.
using Attachments = std::map<std::string, std::string>;

// Checks that the parts cover every tensor exactly once (InternalError naming it if not), writes
// attachments and manifest, and commits. Afterwards `latest` names it. Returns its path.
fs::path commit_checkpoint(Storage& storage, const PendingCheckpoint& pending,
                           std::vector<Records> parts, const CheckpointInfo& info,
                           const Attachments& attachments);

// Gives the space of a failed save back. Throws nothing: what cannot be removed now is removed at
// the next start.
void abandon_checkpoint(Storage& storage, const PendingCheckpoint& pending) noexcept;

}  // namespace trireme
