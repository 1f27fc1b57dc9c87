#include "layout/placement.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "base/error.h"
#include "layout/descriptor.h"

namespace trireme {
namespace {

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const InputError& error) {
    return error.what();
  }
  return "no InputError";
}

constexpr std::array kTensorAxes = {Axis::replica, Axis::shard, Axis::context, Axis::tensor};

// --- The second implementation: lists of row numbers, cut by dealing them out one by one. ---

using Rows = std::vector<int64_t>;

// The rows that rank `index` of `pieces` gets of `rows`: counts first, then a walk.
Rows naive_piece(const Rows& rows, int64_t unit, int pieces, int index) {
  std::vector<int64_t> counts(pieces, 0);
  for (size_t u = 0; u < rows.size() / unit; ++u)
    ++counts[u % pieces];  // dealing gives the first ranks one more
  int64_t skip = 0;
  for (int i = 0; i < index; ++i) skip += counts[i] * unit;
  return {rows.begin() + skip, rows.begin() + skip + counts[index] * unit};
}

Rows naive_cut(const Rows& rows, const Placement& placement, int64_t extent, int pieces,
               int index) {
  const std::vector<Part> parts =
      placement.parts.empty() ? std::vector<Part>{{extent, 1}} : placement.parts;
  Rows mine;
  int64_t base = 0;
  for (const Part& part : parts) {
    Rows of_part;
    for (int64_t row : rows)
      if (row >= base && row < base + part.extent) of_part.push_back(row);
    const Rows piece = naive_piece(of_part, part.unit, pieces, index);
    mine.insert(mine.end(), piece.begin(), piece.end());
    base += part.extent;
  }
  return mine;
}

std::vector<Rows> naive_slice(const Shape& shape, const Placements& placements, const Mesh& mesh,
                              int rank) {
  std::vector<Rows> dims;
  for (int64_t extent : shape) {
    dims.emplace_back(extent);
    for (int64_t i = 0; i < extent; ++i) dims.back()[i] = i;
  }
  for (Axis axis : {Axis::tensor, Axis::context, Axis::shard, Axis::replica})
    if (const Placement& p = placements[axis]; p.sharded())
      dims[p.dim] =
          naive_cut(dims[p.dim], p, shape[p.dim], mesh.size(axis), mesh.coordinate(rank, axis));
  return dims;
}

Rows rows_of(const std::vector<Range>& ranges) {
  Rows rows;
  for (const Range& range : ranges)
    for (int64_t row = range.begin; row < range.end; ++row) rows.push_back(row);
  return rows;
}

// The global offset of every element of a slice, in local order.
std::vector<int64_t> offsets_of(const Slice& slice, const Shape& shape) {
  std::vector<int64_t> offsets = {0};
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    std::vector<int64_t> next;
    for (int64_t offset : offsets)
      for (int64_t row : rows_of(slice.dims[dim])) next.push_back(offset * shape[dim] + row);
    offsets = std::move(next);
  }
  return offsets;
}

// Ranks that agree on every axis that replicates form one copy of the tensor.
int copy_of(const Placements& placements, const Mesh& mesh, int rank) {
  PerAxis at = mesh.coordinates(rank);
  for (Axis axis : kTensorAxes)
    if (placements[axis].sharded()) at[axis] = 0;
  return mesh.rank_of(at);
}

// Each copy tiles the tensor, each slice is the naive one, and the owners hold every element once.
void expect_tiles(const Shape& shape, const Placements& placements, const Mesh& mesh) {
  SCOPED_TRACE(
      concat("shape ", to_string(shape), " on ", to_string(mesh), ", ", to_string(placements)));
  std::map<int, std::vector<int>> copies;  // times that each element is held
  std::vector<int> owned(numel_of(shape), 0);
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const Slice slice = local_slice(shape, placements, mesh, rank);
    const std::vector<Rows> naive = naive_slice(shape, placements, mesh, rank);
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      ASSERT_EQ(rows_of(slice.dims[dim]), naive[dim])
          << "rank " << rank << ": " << to_string(slice);
      for (size_t i = 1; i < slice.dims[dim].size(); ++i)
        ASSERT_LT(slice.dims[dim][i - 1].end, slice.dims[dim][i].begin)
            << "touching ranges are merged";
    }
    auto& held = copies[copy_of(placements, mesh, rank)];
    held.resize(owned.size(), 0);
    for (int64_t offset : offsets_of(slice, shape)) {
      ++held[offset];
      if (owns(placements, mesh, rank)) ++owned[offset];
    }
  }
  for (const auto& [copy, held] : copies)
    ASSERT_EQ(held, std::vector<int>(owned.size(), 1)) << "copy " << copy;
  ASSERT_EQ(owned, std::vector<int>(owned.size(), 1)) << "owners";
}

TEST(EvenPiece, GivesTheFirstRanksOneMore) {
  for (int64_t extent = 0; extent <= 40; ++extent)
    for (int pieces = 1; pieces <= 9; ++pieces) {
      int64_t next = 0;
      for (int index = 0; index < pieces; ++index) {
        const Range piece = even_piece(extent, pieces, index);
        ASSERT_EQ(piece.begin, next);
        ASSERT_EQ(piece.size(), extent / pieces + (index < extent % pieces));
        next = piece.end;
      }
      ASSERT_EQ(next, extent);
    }
}

// One dim cut by up to two axes of every size, a third that replicates, every extent to 9.
TEST(LocalSlice, AllSmallShapesTileOnOneDim) {
  for (int64_t extent = 0; extent <= 9; ++extent)
    for (int outer = 1; outer <= 4; ++outer)
      for (int inner = 1; inner <= 4; ++inner)
        for (int replica : {1, 2}) {
          const Mesh mesh({.replica = replica, .shard = outer, .tensor = inner});
          for (bool cut_outer : {false, true})
            for (bool cut_inner : {false, true}) {
              Placements placements;
              if (cut_outer) placements.set(Axis::shard, Placement::shard(0));
              if (cut_inner) placements.set(Axis::tensor, Placement::shard(0));
              expect_tiles({extent}, placements, mesh);
            }
        }
}

// Two and three fused parts in units of 1 and 2, cut by tensor in parts and by shard without or
// with them.
TEST(LocalSlice, AllSmallFusedWeightsTile) {
  std::vector<std::vector<Part>> fused;
  for (int64_t unit : {1, 2})
    for (int64_t a = 0; a <= 4; ++a)
      for (int64_t b = 0; b <= 3; ++b) {
        fused.push_back({{a * unit, unit}, {b * unit, unit}});
        fused.push_back({{a * unit, unit}, {b, 1}, {b * unit, unit}});
      }
  for (const std::vector<Part>& parts : fused) {
    int64_t extent = 0;
    for (const Part& part : parts) extent += part.extent;
    for (int outer = 1; outer <= 4; ++outer)
      for (int inner = 1; inner <= 4; ++inner)
        for (bool outer_in_parts : {false, true}) {
          Placements placements;
          placements.set(Axis::tensor, Placement::shard(0, parts));
          placements.set(Axis::shard,
                         Placement::shard(0, outer_in_parts ? parts : std::vector<Part>{}));
          expect_tiles({extent, 2}, placements, Mesh({.shard = outer, .tensor = inner}));
        }
  }
}

TEST(LocalSlice, AllSmallShapesTileOnThreeDimsAndFourAxes) {
  for (int64_t a : {1, 2, 5})
    for (int64_t b : {0, 1, 3})
      for (int64_t c : {1, 4})
        for (int code = 0; code < 256;
             ++code) {  // on each of four axes: replicate, or a shard of dim 0, 1, 2
          Placements placements;
          int rest = code;
          for (Axis axis : kTensorAxes) {
            if (rest % 4 > 0) placements.set(axis, Placement::shard(rest % 4 - 1));
            rest /= 4;
          }
          expect_tiles({a, b, c}, placements,
                       Mesh({.replica = 2, .shard = 3, .context = 2, .tensor = 2}));
        }
}

// The reason for "inner first": the pieces of the shard ranks, one after the other, are the tensor
// rank's local weight.
TEST(LocalSlice, GatheringTheOuterAxisGivesTheInnerSliceInOrder) {
  const Shape shape = {11, 3};
  const std::vector<Part> parts = {{6, 2}, {3, 1}, {2, 1}};
  const Mesh mesh({.shard = 3, .tensor = 2});
  Placements placements;
  placements.set(Axis::tensor, Placement::shard(0, parts)).set(Axis::shard, Placement::shard(0));
  for (int tensor = 0; tensor < 2; ++tensor) {
    std::vector<int64_t> gathered;
    for (int shard = 0; shard < 3; ++shard) {
      const int rank = mesh.rank_of({0, 0, shard, 0, tensor});
      for (int64_t offset : offsets_of(local_slice(shape, placements, mesh, rank), shape))
        gathered.push_back(offset);
    }
    const Slice used = local_slice(shape, placements.gathered({Axis::shard}), mesh, tensor);
    EXPECT_EQ(gathered, offsets_of(used, shape));
    EXPECT_EQ(to_string(used), tensor == 0 ? "[0:4+6:8+9:10, 0:3]" : "[4:6+8:9+10:11, 0:3]");
  }
}

// Random layouts A and B: what B's ranks fill from A's ranks, and A's back from B's, is byte for
// byte what A held.
TEST(LocalSlice, ReshardingThereAndBackGivesTheSameBytes) {
  std::mt19937 random(7);
  const auto random_layout = [&](const Shape& shape) {
    const auto size = [&] { return 1 + static_cast<int>(random() % 3); };
    const Mesh mesh({.replica = size(), .shard = size(), .context = size(), .tensor = size()});
    Placements placements;
    for (Axis axis : kTensorAxes)
      if (random() % 3)
        placements.set(axis, Placement::shard(static_cast<int>(random() % shape.size())));
    return std::pair(mesh, placements);
  };
  using Pieces =
      std::vector<std::pair<Slice, std::vector<int64_t>>>;  // slice and elements of each owner
  const auto reshard = [](const Pieces& from, const Shape& shape, const Mesh& mesh,
                          const Placements& placements) {
    Pieces to;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      if (!owns(placements, mesh, rank)) continue;
      to.emplace_back(local_slice(shape, placements, mesh, rank), std::vector<int64_t>());
      to.back().second.assign(to.back().first.numel(), -1);
      for (const auto& [slice, elements] : from)
        for (const CopyRun& run : copy_runs(slice, to.back().first))
          std::copy_n(elements.begin() + run.from, run.numel, to.back().second.begin() + run.to);
    }
    return to;
  };
  for (int trial = 0; trial < 300; ++trial) {
    Shape shape;
    for (int dim = 0; dim < 1 + static_cast<int>(random() % 3); ++dim)
      shape.push_back(1 + static_cast<int64_t>(random() % 7));
    std::vector<int64_t> elements(numel_of(shape));
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<int64_t>(i);
    const Pieces whole = {{Slice::whole(shape), elements}};
    const auto [mesh_a, a] = random_layout(shape);
    const auto [mesh_b, b] = random_layout(shape);
    const Pieces at_a = reshard(whole, shape, mesh_a, a);
    const Pieces at_b = reshard(at_a, shape, mesh_b, b);
    for (const auto& [slice, held] : at_b) ASSERT_EQ(held, offsets_of(slice, shape));
    ASSERT_EQ(reshard(at_b, shape, mesh_a, a), at_a) << "trial " << trial;
  }
}

TEST(LocalSlice, RefusesWhatDoesNotFit) {
  const Mesh mesh({.shard = 2, .tensor = 2});
  const auto slice = [&](const Shape& shape, Placements placements) {
    local_slice(shape, placements, mesh, 0);
  };
  EXPECT_EQ(message_of([&] { slice({4}, Placements().set(Axis::shard, Placement::shard(1))); }),
            "placement on axis shard: shard(1) of a tensor [4], which has 1 dims");
  EXPECT_EQ(
      message_of(
          [&] { slice({8}, Placements().set(Axis::tensor, Placement::shard(0, {{4}, {2}}))); }),
      "placement on axis tensor: the parts of shard(0, 4+2) add up to 6, but dim 0 of [8] has 8");
  EXPECT_NE(message_of([&] {
              slice({3}, Placements().set(Axis::tensor, Placement::shard(0, {{3, 2}})));
            }).find("no whole number of units of 2"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              slice({6}, Placements()
                             .set(Axis::tensor, Placement::shard(0))
                             .set(Axis::shard, Placement::shard(0, {{6, 2}})));
            }).find("within a unit"),
            std::string::npos);
  EXPECT_THROW(Placements().set(Axis::pipeline, Placement::shard(0)), InputError);
}

// --- Gradients: each row is a parameter of llm.md's section 8, its use, and what the field does by
// hand. ---

struct Use {
  const char* parameter;
  Placements value, applied_to, wanted;
  AxisSet gather;  // before use
  AxisSet all_reduce, reduce_scatter;
};

Placements tokens(bool sequence_parallel) {
  Placements tokens;
  for (Axis axis : {Axis::replica, Axis::shard}) tokens.set(axis, Placement::shard(0));
  tokens.set(Axis::context, Placement::shard(1));
  if (sequence_parallel) tokens.set(Axis::tensor, Placement::shard(1));
  return tokens;
}

TEST(Gradient, SumsAreThoseOfTheField) {
  const Placements whole, shard0 = Placements().with(Axis::shard, Placement::shard(0));
  const Placements column = whole.with(Axis::tensor, Placement::shard(0));
  const Placements row = whole.with(Axis::tensor, Placement::shard(1));
  const Placements column_fsdp = shard0.with(Axis::tensor, Placement::shard(0));
  const Placements by_heads = tokens(false).with(Axis::tensor, Placement::shard(2));
  const AxisSet data = {Axis::replica, Axis::shard, Axis::context};
  const AxisSet all = {Axis::replica, Axis::shard, Axis::context, Axis::tensor};
  const AxisSet outer = {Axis::replica, Axis::context},
                outer_tensor = {Axis::replica, Axis::context, Axis::tensor};
  const AxisSet shard = {Axis::shard};
  const std::vector<Use> uses = {
      {"norm, data parallel", whole, tokens(false), whole, {}, data, {}},
      {"norm, ZeRO-1 and 2", whole, tokens(false), shard0, {}, outer, shard},
      {"norm, ZeRO-3", shard0, tokens(false), shard0, shard, outer, shard},
      {"norm, sequence parallel", whole, tokens(true), whole, {}, all, {}},
      {"norm, ZeRO-3 and sequence parallel", shard0, tokens(true), shard0, shard, outer_tensor,
       shard},
      {"column linear", column, tokens(false), column, {}, data, {}},
      {"column linear, ZeRO-3", column_fsdp, tokens(false), column_fsdp, shard, outer, shard},
      {"row linear", row, by_heads, row, {}, data, {}},
      {"qk-norm, whole, on sharded heads", whole, by_heads, whole, {}, all, {}},
      {"row bias, after the sum", whole, tokens(false), whole, {}, data, {}},
      {"row bias, sequence parallel", whole, tokens(true), whole, {}, all, {}},
  };
  const Mesh mesh({.replica = 2, .shard = 2, .context = 2, .tensor = 2});
  for (const Use& use : uses) {
    SCOPED_TRACE(use.parameter);
    const Placements produced = produced_gradient(use.value.gathered(use.gather), use.applied_to);
    const GradientReduction sums = gradient_reduction(use.parameter, produced, use.wanted, mesh);
    EXPECT_EQ(sums, (GradientReduction{use.all_reduce, use.reduce_scatter}))
        << "all-reduce " << to_string(sums.all_reduce) << ", reduce-scatter "
        << to_string(sums.reduce_scatter);
    Placements left = summed_over(sums.all_reduce, use.parameter, produced, use.wanted, mesh);
    left = summed_over(sums.reduce_scatter, use.parameter, left, use.wanted, mesh);
    EXPECT_EQ(left, use.wanted);
    EXPECT_NO_THROW(check_gradient(use.parameter, use.value, left, mesh));
    // An axis of size one needs no sum and cannot be wrong.
    EXPECT_EQ(gradient_reduction(use.parameter, produced, use.wanted, Mesh()), GradientReduction{});
    EXPECT_NO_THROW(check_gradient(use.parameter, use.value, produced, Mesh()));
  }
}

TEST(Gradient, AForgottenDoubledOrImpossibleSumIsNamed) {
  const Mesh mesh({.replica = 2, .shard = 2, .tensor = 2});
  const Placements whole, shard0 = Placements().with(Axis::shard, Placement::shard(0));
  const Placements partial = whole.with(Axis::replica, Placement::partial());
  EXPECT_EQ(message_of([&] { check_gradient("w", whole, partial, mesh); }),
            "parameter w on axis replica: its value is replicate, its gradient partial: a sum over "
            "the axis is missing");
  EXPECT_EQ(message_of([&] { check_gradient("w", shard0, whole, mesh); }),
            "parameter w on axis shard: its value is shard(0), its gradient replicate: they must "
            "be the same");
  EXPECT_EQ(message_of([&] {
              check_gradient("w", whole.with(Axis::tensor, Placement::shard(0)),
                             whole.with(Axis::tensor, Placement::shard(1)), mesh);
            }),
            "parameter w on axis tensor: its value is shard(0), its gradient shard(1): they must "
            "be the same");
  EXPECT_EQ(message_of([&] { summed_over({Axis::tensor}, "w", partial, whole, mesh); }),
            "gradient of w is summed over axis tensor, on which it is replicate: expected partial, "
            "or it is counted "
            "once for each rank");
  EXPECT_EQ(message_of([&] { gradient_reduction("w", shard0, whole, mesh); }),
            "gradient of w on axis shard: a backward produces shard(0), the update reads "
            "replicate, and no sum leads "
            "from one to the other");
  EXPECT_THROW(owns(partial, mesh, 0), InputError);
  EXPECT_THROW(produced_gradient(partial, whole), InputError);
}

TEST(Descriptor, CountsBytesAndRefusesTooMany) {
  EXPECT_EQ((TensorDescriptor{"w", {3, 4}, DType::bfloat16}.nbytes()), 24);
  EXPECT_EQ(to_string(TensorDescriptor{"w", {3, 4}, DType::bfloat16}), "w bf16 [3, 4]");
  EXPECT_THROW((TensorDescriptor{"w", {int64_t{1} << 61}, DType::float64}.nbytes()), InputError);
}

}  // namespace
}  // namespace trireme
