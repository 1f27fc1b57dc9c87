#include "train/saving.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>

#include "base/error.h"
#include "fabric/dtype.h"

namespace trireme {
namespace {

std::span<const std::byte> bytes_of(const at::Tensor& flat, const Piece& piece) {
  const int64_t width = static_cast<int64_t>(flat.element_size());
  const auto* data = static_cast<const std::byte*>(flat.const_data_ptr());
  return {data + piece.shard_offset * width, static_cast<size_t>(piece.shard_numel * width)};
}

// Weights and moments of this rank, piece by piece: visit(name, kind, piece, flat tensor).
template <class F>
void each_tensor(const TrainingState& state, F visit) {
  auto& units = state.parameters.units();
  for (size_t u = 0; u < units.size(); ++u)
    for (const Piece& piece : units[u].pieces) {
      visit(piece.spec.name, "weight", piece, units[u].shard);
      if (!state.optimizer) continue;
      for (MomentSet& moment : state.optimizer->moments())
        visit(moment.name + "/" + piece.spec.name, "moment", piece, moment.units[u]);
    }
}

std::vector<ExpectedTensor> expected_weights(const Model& model) {
  std::vector<ExpectedTensor> weights;
  for (const ModelNode& node : model.nodes)
    for (const WeightSpec& weight : node.block->weights())
      for (const ParameterSpec& part : weight.parts) weights.push_back({part.name, part.shape});
  return weights;
}

// Texts of all ranks, at rank 0 in rank order; every rank takes part.
std::vector<std::string> gather_texts(Communicator& world, const std::string& text) {
  std::vector<double> lengths(static_cast<size_t>(world.size()));
  lengths[static_cast<size_t>(world.rank())] = static_cast<double>(text.size());
  world.all_reduce_sum(lengths);
  std::vector<int64_t> counts(lengths.begin(), lengths.end());
  int64_t total = 0;
  for (int64_t count : counts) total += count;
  at::Tensor mine = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(mine.mutable_data_ptr(), text.data(), text.size());
  at::Tensor all = at::empty({total}, at::kByte);
  world.all_gather(mine, all, counts);
  std::vector<std::string> texts;
  const char* at = static_cast<const char*>(all.const_data_ptr());
  for (int64_t count : counts) {
    texts.emplace_back(at, static_cast<size_t>(count));
    at += count;
  }
  return texts;
}

// Runs `work` on ranks that do it; if it fails on one, all throw: the one its error, the others
// that one failed.
template <class F>
void all_or_none(Communicator& world, bool mine, F work) {
  std::exception_ptr error;
  if (mine) {
    try {
      work();
    } catch (const Error&) {
      error = std::current_exception();
    }
  }
  double failed[] = {error ? 1.0 : 0.0};
  world.all_reduce_max(failed);
  if (error) std::rethrow_exception(error);
  if (failed[0] > 0) throw RunError("another rank could not write its part of the checkpoint");
}

}  // namespace

fs::path save_checkpoint(Storage& storage, const fs::path& checkpoints, Fabric& fabric,
                         const Mesh& mesh, const TrainingState& state, CheckpointInfo info,
                         const Position& position, const Attachments& attachments) {
  Communicator& world = fabric.world();
  const bool first = fabric.rank() == 0;
  const bool owner = mesh.coordinate(fabric.rank(), Axis::replica) == 0;
  std::vector<TensorChunk> chunks;
  if (owner)
    each_tensor(state, [&](const std::string& name, const char* kind, const Piece& piece,
                           const at::Tensor& flat) {
      chunks.push_back({name, kind, dtype_of(flat.scalar_type()), piece.spec.shape, piece.slice,
                        bytes_of(flat, piece)});
    });
  if (owner && state.tables) state.tables->add_to(chunks);

  PendingCheckpoint pending;
  pending.step = position.step;
  int64_t bytes = 0;
  for (const TensorChunk& chunk : chunks) bytes += static_cast<int64_t>(chunk.data.size());
  double total_bytes[] = {static_cast<double>(bytes)};
  world.all_reduce_sum(total_bytes);
  try {
    all_or_none(world, first, [&] {
      pending = begin_checkpoint(storage, checkpoints, position.step,
                                 static_cast<int64_t>(total_bytes[0]));
    });
    pending.partial = gather_texts(world, pending.partial.string())[0];
    Records records;
    all_or_none(world, true, [&] {
      RankWriter writer(storage, pending.partial, fabric.rank(), fabric.ranks());
      for (TensorChunk& chunk : chunks) writer.add(std::move(chunk));
      records = writer.finish();
    });
    const std::vector<std::string> texts = gather_texts(world, serialize_records(records));
    fs::path path;
    all_or_none(world, first, [&] {
      std::vector<Records> parts;
      for (const std::string& text : texts) parts.push_back(parse_records(text));
      info.step = position.step;
      info.samples = position.samples;
      info.layout = to_string(mesh);
      info.extra["updates"] = concat(position.updates);
      path = commit_checkpoint(storage, pending, std::move(parts), info, attachments);
    });
    return path;
  } catch (const Error&) {
    if (first && !pending.partial.empty()) abandon_checkpoint(storage, pending);
    throw;
  }
}

void require_weights(const Checkpoint& checkpoint, const Model& model) {
  checkpoint.require(expected_weights(model), "weight");
}

Position load_checkpoint(const Checkpoint& checkpoint, const Model& model,
                         const TrainingState& state) {
  require_weights(checkpoint, model);
  if (state.optimizer) {
    std::vector<ExpectedTensor> moments;
    for (const ExpectedTensor& weight : expected_weights(model))
      for (const MomentSet& moment : state.optimizer->moments())
        moments.push_back({moment.name + "/" + weight.name, weight.shape});
    checkpoint.require(moments, "moment");
  }
  each_tensor(
      state, [&](const std::string& name, const char*, const Piece& piece, const at::Tensor& flat) {
        const auto bytes = bytes_of(flat, piece);
        checkpoint.read(name, piece.slice, dtype_of(flat.scalar_type()),
                        {const_cast<std::byte*>(bytes.data()),
                         bytes.size()});  // flat is this rank's own, not shared
      });
  if (state.tables) state.tables->load(checkpoint);
  const CheckpointInfo& info = checkpoint.info();
  Position position{info.step, info.samples, info.step};
  if (const auto updates = info.extra.find("updates"); updates != info.extra.end())
    position.updates = std::stoll(updates->second);
  return position;
}

}  // namespace trireme
