#include "engine/parameters.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "layout/placement.h"

namespace trireme {
namespace {

Unit make_unit(const Block& block, const Mesh& mesh, int rank, bool sharded) {
  Unit unit;
  unit.name = block.name();
  Placements placements;
  if (sharded) placements.set(Axis::shard, Placement::shard(0));
  const std::vector<int> group = sharded ? mesh.group({Axis::shard}, rank) : std::vector<int>{rank};
  std::vector<std::vector<Segment>> segments(group.size());
  for (const WeightSpec& weight : block.weights()) {
    const int64_t begin = unit.whole_numel;
    Shape shape = weight.parts[0].shape;
    shape[0] = 0;
    for (const ParameterSpec& part : weight.parts) {
      Piece piece{
          .spec = part, .whole_offset = unit.whole_numel, .whole_numel = numel_of(part.shape)};
      const int64_t row_numel = part.shape[0] > 0 ? piece.whole_numel / part.shape[0] : 0;
      for (size_t member = 0; member < group.size(); ++member) {
        const Slice slice = local_slice(part.shape, placements, mesh, group[member]);
        TRIREME_ASSERT(slice.dims[0].size() == 1, part.name);
        const Range rows = slice.dims[0][0];
        const Segment segment{piece.whole_offset + rows.begin * row_numel, rows.size() * row_numel};
        segments[member].push_back(segment);
        if (group[member] != rank) continue;
        piece.slice = slice;
        piece.shard_offset = unit.shard_numel;
        piece.shard_numel = segment.numel;
        unit.shard_numel += segment.numel;
      }
      unit.whole_numel += piece.whole_numel;
      shape[0] += part.shape[0];
      unit.pieces.push_back(std::move(piece));
    }
    unit.weights.push_back({begin, unit.whole_numel - begin});
    unit.weight_shapes.push_back(shape);
  }
  unit.segments = SegmentMap(unit.whole_numel, std::move(segments));
  return unit;
}

// The slice's elements in its own order, computed by their global index.
template <class T>
void fill(const Piece& piece, uint64_t seed, T* out, int64_t begin, int64_t end) {
  const Initial& initial = piece.spec.initial;
  if (initial.kind == Initial::Kind::constant) {
    std::fill(out + begin, out + end, static_cast<T>(initial.value));
    return;
  }
  const RandomStream stream(seed, "init/" + piece.spec.name);
  // Rows are cut, columns are whole: local index i is global index first + i.
  const int64_t first = piece.spec.shape[0] > 0 ? piece.slice.dims[0][0].begin *
                                                      (piece.whole_numel / piece.spec.shape[0])
                                                : 0;
  for (int64_t i = begin; i < end; ++i)
    out[i] = static_cast<T>(initial.value * stream.normal(static_cast<uint64_t>(first + i)));
}

}  // namespace

Parameters::Parameters(const Model& model, at::ScalarType dtype, const Mesh& mesh, int rank,
                       bool sharded, int lanes)
    : dtype_(dtype), sharded_(sharded), lanes_(lanes) {
  std::map<std::string, int32_t> unit_of;
  std::set<std::string> names;
  for (const ModelNode& node : model.nodes) {
    const Block& block = *node.block;
    std::vector<WeightRef>& refs = block_weights_.emplace_back();
    if (!block.weights().empty()) {
      const auto index = static_cast<int32_t>(units_.size());
      unit_of[block.name()] = index;
      units_.push_back(make_unit(block, mesh, rank, sharded));
      for (int32_t w = 0; w < static_cast<int32_t>(block.weights().size()); ++w)
        refs.push_back({index, w});
      for (const Piece& piece : units_.back().pieces)
        TRIREME_ASSERT(names.insert(piece.spec.name).second, "two parameters are called ",
                       piece.spec.name);
    }
    for (const TiedWeight& tied : block.tied())
      refs.push_back({unit_of.at(tied.owner), static_cast<int32_t>(tied.weight)});
  }
  const auto options = at::TensorOptions(dtype);
  leaves_.resize(static_cast<size_t>(lanes));
  for (Unit& unit : units_) {
    unit.whole = at::empty({unit.whole_numel}, options);
    unit.shard = sharded ? at::empty({unit.shard_numel}, options) : unit.whole;
    for (auto& lane : leaves_) {
      auto& leaves = lane.emplace_back();
      for (size_t w = 0; w < unit.weights.size(); ++w)
        leaves.push_back(unit.whole.detach()
                             .narrow(0, unit.weights[w].offset, unit.weights[w].numel)
                             .view(unit.weight_shapes[w])
                             .detach()
                             .set_requires_grad(true));
    }
    if (sharded) release(unit);
  }
}

void Parameters::initialize(uint64_t seed, int threads) {
  // Pieces are cut into jobs of a fixed size, so that one large embedding does not keep the other
  // threads idle.
  constexpr int64_t kJob = 1 << 18;
  struct Job {
    const Unit* unit;
    const Piece* piece;
    int64_t begin, end;
  };
  std::vector<Job> jobs;
  for (const Unit& unit : units_)
    for (const Piece& piece : unit.pieces)
      for (int64_t at = 0; at < piece.shard_numel; at += kJob)
        jobs.push_back({&unit, &piece, at, std::min(at + kJob, piece.shard_numel)});
  const auto work = [&](size_t first) {
    for (size_t j = first; j < jobs.size(); j += static_cast<size_t>(threads)) {
      const auto [unit, piece, begin, end] = jobs[j];
      if (dtype_ == at::kDouble)
        fill(*piece, seed, unit->shard.mutable_data_ptr<double>() + piece->shard_offset, begin,
             end);
      else
        fill(*piece, seed, unit->shard.mutable_data_ptr<float>() + piece->shard_offset, begin, end);
    }
  };
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back(work, static_cast<size_t>(t));
  work(0);
  for (std::thread& thread : others) thread.join();
}

// The storage object stays, so that every view of it, in graphs too, sees the memory come and go.
void Parameters::materialize(Unit& unit) {
  at::native::resize_bytes_cpu(unit.whole.storage().unsafeGetStorageImpl(),
                               static_cast<size_t>(unit.whole_numel) * unit.whole.element_size());
}

void Parameters::release(Unit& unit) {
  auto* storage = unit.whole.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(0));
  storage->set_nbytes(0);
}

int64_t Parameters::owned_bytes() const {
  int64_t bytes = 0;
  for (const Unit& unit : units_)
    bytes += unit.shard_numel * static_cast<int64_t>(c10::elementSize(dtype_));
  return bytes;
}

}  // namespace trireme
