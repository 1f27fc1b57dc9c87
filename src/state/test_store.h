// What the tests of the store share: a small run's state as a function of its step, cut at random.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/random.h"
#include "state/checkpoint.h"
#include "state/memory_storage.h"
#include "state/retention.h"
#include "state/store.h"

namespace trireme::testing {

using Bytes = std::vector<std::byte>;

struct TestTensor {
  std::string name, kind;
  DType dtype;
  Shape shape;
};

inline std::vector<TestTensor> small_model() {
  return {{"model.embed_tokens.weight", "weight", DType::float32, {13, 6}},
          {"model.norm.weight", "weight", DType::bfloat16, {7}},
          {"model.layers.0.mlp.experts.weight", "weight", DType::float64, {3, 4, 5}},
          {"adamw.m/model.embed_tokens.weight", "moment", DType::float32, {13, 6}},
          {"adamw.step", "moment", DType::int64, {}},
          {"rows/user.keys", "row", DType::int64, {11}},
          {"nothing", "weight", DType::float32, {0, 4}}};
}

// Every element of every tensor differs between steps.
inline Bytes content_of(const TestTensor& tensor, int64_t step) {
  Bytes bytes(static_cast<size_t>(numel_of(tensor.shape) * bytes_of(tensor.dtype)));
  const RandomStream stream(static_cast<uint64_t>(step), tensor.name);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(stream.bits(i));
  return bytes;
}

// The elements of `slice`, found by walking over every element of the tensor: the oracle.
inline Bytes naive_slice(const TestTensor& tensor, const Bytes& whole, const Slice& slice) {
  Bytes out;
  const auto width = static_cast<size_t>(bytes_of(tensor.dtype));
  for (int64_t flat = 0; flat < numel_of(tensor.shape); ++flat) {
    int64_t rest = flat;
    bool inside = true;
    for (size_t dim = tensor.shape.size(); dim-- > 0;) {
      const int64_t index = rest % tensor.shape[dim];
      rest /= tensor.shape[dim];
      bool here = false;
      for (const Range& range : slice.dims[dim])
        here = here || (range.begin <= index && index < range.end);
      inside = inside && here;
    }
    const auto at = whole.begin() + static_cast<ptrdiff_t>(static_cast<size_t>(flat) * width);
    if (inside) out.insert(out.end(), at, at + static_cast<ptrdiff_t>(width));
  }
  return out;
}

inline std::vector<StorageEntry> entries_in(Storage& storage, const fs::path& directory) {
  return storage.list(directory).value();
}

// Numbers for a test's choices.
class Dice {
 public:
  Dice(uint64_t seed, std::string_view name) : stream_(seed, name) {}
  int64_t below(int64_t bound) {
    return static_cast<int64_t>(stream_.below(next_++, static_cast<uint64_t>(bound)));
  }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

// The indices of a dim, dealt to `hands` lists of ranges.
inline std::vector<std::vector<Range>> deal(int64_t extent, int64_t hands, Dice& dice) {
  std::vector<std::vector<Range>> dealt(static_cast<size_t>(hands));
  for (int64_t at = 0; at < extent;) {
    const int64_t end = at + 1 + dice.below(extent - at);
    auto& hand = dealt[static_cast<size_t>(dice.below(hands))];
    if (!hand.empty() && hand.back().end == at) hand.back().end = end;
    else hand.push_back({at, end});
    at = end;
  }
  return dealt;
}

// A partition of a tensor into slices: the products of what each dim was dealt into. Some may be
// empty.
inline std::vector<Slice> random_cut(const Shape& shape, Dice& dice) {
  std::vector<Slice> slices(1);
  for (int64_t extent : shape) {
    std::vector<Slice> longer;
    for (const auto& hand : deal(extent, 1 + dice.below(3), dice))
      for (const Slice& slice : slices) {
        longer.push_back(slice);
        longer.back().dims.push_back(hand);
      }
    slices = std::move(longer);
  }
  return slices;
}

// How a save is cut: one rank with everything whole, or random cuts dealt to `ranks`.
struct Cut {
  int ranks = 1;
  uint64_t seed = 0;
  int64_t block_bytes = 64;
};

inline CheckpointInfo info_of(int64_t step) {
  CheckpointInfo info;
  info.step = step;
  info.samples = 16 * step;
  info.tokens = 4096 * step;
  info.seed = 1;
  info.recipe = "task = \"pretrain\"\n";
  info.layout = "shard=2";
  info.software = {{"trireme", "0.1.0"}};
  info.metrics = {{"loss", 0.1 + static_cast<double>(step)}};
  return info;
}

inline std::vector<Records> write_ranks(Storage& storage, const fs::path& partial, int64_t step,
                                        const Cut& cut) {
  Dice dice(cut.seed, "cut");
  std::vector<Bytes> kept;
  std::vector<RankWriter> writers;
  for (int rank = 0; rank < cut.ranks; ++rank)
    writers.emplace_back(storage, partial, rank, cut.ranks, cut.block_bytes);
  for (const TestTensor& tensor : small_model()) {
    const Bytes whole = content_of(tensor, step);
    for (const Slice& slice : cut.ranks == 1 ? std::vector{Slice::whole(tensor.shape)}
                                             : random_cut(tensor.shape, dice)) {
      kept.push_back(naive_slice(tensor, whole, slice));
      writers[static_cast<size_t>(dice.below(cut.ranks))].add({.name = tensor.name,
                                                               .kind = tensor.kind,
                                                               .dtype = tensor.dtype,
                                                               .shape = tensor.shape,
                                                               .slice = slice,
                                                               .data = kept.back()});
    }
  }
  std::vector<Records> parts;
  for (RankWriter& writer : writers)  // as between processes
    parts.push_back(parse_records(serialize_records(writer.finish())));
  return parts;
}

inline fs::path save(Storage& storage, const fs::path& checkpoints, int64_t step,
                     const Cut& cut = {}) {
  const PendingCheckpoint pending = begin_checkpoint(storage, checkpoints, step);
  return commit_checkpoint(storage, pending, write_ranks(storage, pending.partial, step, cut),
                           info_of(step),
                           {{"config.json", "{}"}, {"tokenizer.json", std::string(100, 't')}});
}

// Reads everything; "" if it is what save() wrote at the checkpoint's step, else what differs.
inline std::string difference_from_saved(const Checkpoint& checkpoint) {
  const int64_t step = checkpoint.info().step;
  const CheckpointInfo info = info_of(step);
  if (checkpoint.info().samples != info.samples || checkpoint.info().recipe != info.recipe ||
      checkpoint.info().metrics != info.metrics || checkpoint.info().software != info.software)
    return "info differs";
  const auto model = small_model();
  if (checkpoint.tensors().size() != model.size()) return "the number of tensors differs";
  for (const TestTensor& tensor : model) {
    const Bytes expected = content_of(tensor, step);
    Bytes found(expected.size());
    checkpoint.read(tensor.name, Slice::whole(tensor.shape), tensor.dtype, found);
    if (found != expected) return "tensor " + tensor.name + " differs";
  }
  if (checkpoint.attachment("config.json") != "{}") return "config.json differs";
  if (checkpoint.attachment("tokenizer.json") != std::string(100, 't')) return "tokenizer differs";
  return "";
}

}  // namespace trireme::testing
