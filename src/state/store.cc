#include "state/store.h"

#include <algorithm>
#include <cerrno>
#include <iomanip>
#include <utility>

#include "base/checksum.h"
#include "base/log.h"
#include "state/retention.h"
#include "state/safetensors.h"

namespace trireme {
namespace {

void make_directories(Storage& storage, const fs::path& path) {
  if (storage.list(path)) return;
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (parent != path) make_directories(storage, parent);
  try {
    storage.make_directory(path);
  } catch (const StorageError& error) {
    if (error.code() != EEXIST || !storage.list(path)) throw;
  }
  storage.sync_directory(parent);
}

void write_synced(Storage& storage, const fs::path& path, std::string_view text) {
  const auto file = storage.create(path);
  file->write(text);
  file->sync();
  file->close();
}

// The first name for `step` that sorts behind every other save of it.
fs::path target_of(Storage& storage, const fs::path& checkpoints, int64_t step) {
  CheckpointName name{.step = step};
  const auto entries = storage.list(checkpoints);
  for (const StorageEntry& entry : entries.value()) {
    const auto other = parse_checkpoint_name(entry.name);
    if (other && other->step == step && other->state == CheckpointName::State::committed)
      name.again = std::max(name.again, other->again + 1);
  }
  return checkpoints / to_string(name);
}

void write_latest(Storage& storage, const fs::path& target) {
  const fs::path latest = target.parent_path() / "latest", partial = latest.string() + ".partial";
  try {
    storage.remove(partial);  // of a crash
  } catch (const StorageError& error) {
    if (error.code() != ENOENT) throw;
  }
  write_synced(storage, partial, target.filename().string() + "\n");
  storage.rename(partial, latest);
  storage.sync_directory(target.parent_path());
}

Records merge(std::vector<Records> parts) {
  TRIREME_ASSERT(!parts.empty(), "a checkpoint of no rank");
  Records all;
  all.block_bytes = parts[0].block_bytes;
  std::map<std::string, TensorRecord> tensors;
  for (Records& part : parts) {
    TRIREME_ASSERT(part.block_bytes == all.block_bytes,
                   "ranks differ in block_bytes: ", part.block_bytes, " and ", all.block_bytes);
    std::ranges::move(part.files, std::back_inserter(all.files));
    for (TensorRecord& tensor : part.tensors) {
      TensorRecord& there =
          tensors
              .try_emplace(tensor.name,
                           TensorRecord{tensor.name, tensor.kind, tensor.dtype, tensor.shape, {}})
              .first->second;
      TRIREME_ASSERT(
          there.kind == tensor.kind && there.dtype == tensor.dtype && there.shape == tensor.shape,
          "tensor ", tensor.name, ": ranks differ in kind, dtype or shape");
      std::ranges::move(tensor.chunks, std::back_inserter(there.chunks));
    }
  }
  for (auto& [name, tensor] : tensors) all.tensors.push_back(std::move(tensor));
  return all;
}

std::string file_stem(const std::string& kind) {
  return kind == "weight" ? "model" : kind == "moment" ? "optimizer" : kind;
}

// How a chunk is called in its file: the tensor's own name if it is all of it.
std::string entry_name(const TensorChunk& chunk) {
  if (chunk.slice == Slice::whole(chunk.shape)) return chunk.name;
  std::string slice = to_string(chunk.slice);
  std::erase(slice, ' ');
  return chunk.name + "@" + slice.substr(1, slice.size() - 2);
}

// Writes the bytes of a chunk and returns the checksums of its blocks.
std::vector<uint32_t> write_chunk(const TensorChunk& chunk, WriteFile& file, int64_t block_bytes) {
  const int64_t nbytes = chunk.slice.numel() * bytes_of(chunk.dtype);
  std::vector<std::byte> buffer;
  std::vector<uint32_t> checksums;
  for (int64_t at = 0; at < nbytes; at += block_bytes) {
    const auto n = static_cast<size_t>(std::min(block_bytes, nbytes - at));
    std::span<const std::byte> block;
    if (chunk.produce) {
      buffer.resize(n);
      chunk.produce(at, buffer);
      block = buffer;
    } else {
      block = chunk.data.subspan(static_cast<size_t>(at), n);
    }
    checksums.push_back(crc32c(block));
    file.write(block);
  }
  return checksums;
}

}  // namespace

PendingCheckpoint begin_checkpoint(Storage& storage, const fs::path& checkpoints, int64_t step,
                                   int64_t expected_bytes) {
  TRIREME_ASSERT(step >= 0, "step ", step);
  make_directories(storage, checkpoints);
  const int64_t free = storage.free_bytes(checkpoints);
  if (expected_bytes > 0 && free - expected_bytes < expected_bytes / 10)
    throw StorageError(concat("save ", format_bytes(static_cast<uint64_t>(expected_bytes)), ", ",
                              format_bytes(static_cast<uint64_t>(free)), " being free, in"),
                       checkpoints, ENOSPC);
  PendingCheckpoint pending = begin_checkpoint_at(storage, target_of(storage, checkpoints, step));
  pending.step = step;
  return pending;
}

PendingCheckpoint begin_checkpoint_at(Storage& storage, const fs::path& path) {
  const fs::path target = path.has_filename() ? path : path.parent_path();  // without a last slash
  TRIREME_CHECK(!storage.list(target), "cannot write the checkpoint ", target.string(),
                ": it exists\nnext: remove it, or name another place");
  const PendingCheckpoint pending{.partial = target.string() + ".partial", .target = target};
  if (target.has_parent_path()) make_directories(storage, target.parent_path());
  remove_directory(storage, pending.partial);
  storage.make_directory(pending.partial);
  return pending;
}

RankWriter::RankWriter(Storage& storage, fs::path partial, int rank, int ranks, int64_t block_bytes)
    : storage_(storage),
      partial_(std::move(partial)),
      rank_(rank),
      ranks_(ranks),
      block_bytes_(block_bytes) {
  TRIREME_ASSERT(0 <= rank && rank < ranks, "rank ", rank, " of ", ranks);
  TRIREME_ASSERT(block_bytes > 0 && block_bytes % 8 == 0, "block_bytes ", block_bytes);
}

void RankWriter::add(TensorChunk chunk) {
  const int64_t nbytes = chunk.slice.numel() * bytes_of(chunk.dtype);
  TRIREME_ASSERT(chunk.slice.dims.size() == chunk.shape.size(), chunk.name, ": slice ",
                 to_string(chunk.slice), " of ", to_string(chunk.shape));
  TRIREME_ASSERT(chunk.produce || static_cast<int64_t>(chunk.data.size()) == nbytes, chunk.name,
                 ": slice ", to_string(chunk.slice), " takes ", nbytes, " bytes, given are ",
                 chunk.data.size());
  TRIREME_ASSERT(valid_kind(chunk.kind), chunk.name, ": kind \"", chunk.kind, "\"");
  chunks_.push_back(std::move(chunk));
}

Records RankWriter::finish() {
  Records part{.block_bytes = block_bytes_, .files = {}, .tensors = {}};
  std::map<std::string, std::vector<TensorChunk*>> by_kind;
  for (TensorChunk& chunk : chunks_) {
    if (!chunk.slice.empty()) by_kind[chunk.kind].push_back(&chunk);
    else part.tensors.push_back({chunk.name, chunk.kind, chunk.dtype, chunk.shape, {}});
  }
  for (auto& [kind, chunks] : by_kind) write_file(kind, std::move(chunks), part);
  chunks_.clear();
  return part;
}

void RankWriter::write_file(const std::string& kind, std::vector<TensorChunk*> chunks,
                            Records& part) {
  // Wide elements first, so that each tensor is aligned to its element.
  std::ranges::stable_sort(chunks, [](const TensorChunk* a, const TensorChunk* b) {
    return bytes_of(a->dtype) > bytes_of(b->dtype);
  });
  std::string name = file_stem(kind);
  if (ranks_ > 1) {
    std::ostringstream numbers;
    numbers << std::setfill('0') << '-' << std::setw(5) << rank_ << "-of-" << std::setw(5)
            << ranks_;
    name += numbers.str();
  }
  name += ".safetensors";
  std::vector<SafetensorsEntry> entries;
  for (const TensorChunk* chunk : chunks)
    entries.push_back({{entry_name(*chunk), chunk->slice.extents(), chunk->dtype}, 0});
  const std::string head = safetensors_head(entries);

  const auto file = storage_.create(partial_ / name);
  file->write(head);
  int64_t end = static_cast<int64_t>(head.size());
  for (size_t i = 0; i < chunks.size(); ++i) {
    TensorChunk& chunk = *chunks[i];
    ChunkRecord record{name, entries[i].offset, entries[i].nbytes(), chunk.slice, {}};
    record.crc32c = write_chunk(chunk, *file, block_bytes_);
    end += record.bytes;
    part.tensors.push_back({chunk.name, chunk.kind, chunk.dtype, chunk.shape, {std::move(record)}});
  }
  file->sync();
  file->close();
  part.files.push_back(
      {name, end, static_cast<int64_t>(head.size()), crc32c(std::as_bytes(std::span(head)))});
}

fs::path commit_checkpoint(Storage& storage, const PendingCheckpoint& pending,
                           std::vector<Records> parts, const CheckpointInfo& info,
                           const Attachments& attachments) {
  TRIREME_ASSERT(info.step == pending.step, "step ", info.step, " in the checkpoint of step ",
                 pending.step);
  Manifest manifest{merge(std::move(parts)), info};
  for (const auto& [name, text] : attachments) {
    const auto nbytes = static_cast<int64_t>(text.size());
    manifest.files.push_back({name, nbytes, nbytes, crc32c(std::as_bytes(std::span(text)))});
  }
  const std::string text = format_manifest(manifest);
  for (const auto& [name, content] : attachments)
    write_synced(storage, pending.partial / name, content);
  write_synced(storage, pending.partial / kManifestName, text);
  storage.sync_directory(pending.partial);
  storage.rename(pending.partial, pending.target);  // the commit, once it is durable
  const fs::path parent = pending.target.parent_path();
  storage.sync_directory(parent);

  const auto name = parse_checkpoint_name(pending.target.filename().string());
  if (!name) return pending.target;
  try {
    write_latest(storage, pending.target);
    if (name->again > 1) remove_superseded(storage, parent, *name);
  } catch (const StorageError& error) {  // the checkpoint stands
    log_warning(concat("after the commit of ", pending.target.string(), ": ", error.what()));
  }
  return pending.target;
}

void abandon_checkpoint(Storage& storage, const PendingCheckpoint& pending) noexcept {
  try {
    remove_directory(storage, pending.partial);
  } catch (const Error& error) {
    log_warning(concat("the failed save leaves ", pending.partial.string(), ": ", error.what()));
  }
}

}  // namespace trireme
