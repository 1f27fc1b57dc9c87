#include "layout/mesh.h"

#include <limits>

#include "base/error.h"

namespace trireme {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"pipeline", "replica", "shard", "context",
                                                    "tensor"};

// "pipeline 1 x replica 2 x …": for messages that show every factor.
std::string product_text(const PerAxis& sizes) {
  std::string text;
  for (Axis axis : kAxes)
    text += concat(text.empty() ? "" : " x ", name_of(axis), " ", sizes[axis]);
  return text;
}

}  // namespace

std::string_view name_of(Axis axis) { return kNames.at(static_cast<size_t>(axis)); }

std::optional<Axis> parse_axis(std::string_view name) {
  for (Axis axis : kAxes)
    if (name == name_of(axis)) return axis;
  return std::nullopt;
}

std::vector<Axis> AxisSet::axes() const {
  std::vector<Axis> axes;
  for (Axis axis : kAxes)
    if (contains(axis)) axes.push_back(axis);
  return axes;
}

std::string to_string(AxisSet axes) {
  std::string text;
  for (Axis axis : axes.axes()) text += concat(text.empty() ? "" : ".", name_of(axis));
  return text.empty() ? "none" : text;
}

int& PerAxis::operator[](Axis axis) {
  switch (axis) {
    case Axis::pipeline:
      return pipeline;
    case Axis::replica:
      return replica;
    case Axis::shard:
      return shard;
    case Axis::context:
      return context;
    case Axis::tensor:
      return tensor;
  }
  TRIREME_ASSERT(false, "axis ", static_cast<int>(axis));
  return tensor;
}

int PerAxis::operator[](Axis axis) const { return const_cast<PerAxis&>(*this)[axis]; }

Mesh::Mesh(const AxisSizes& sizes)
    : sizes_{sizes.pipeline, sizes.replica, sizes.shard, sizes.context, sizes.tensor}, ranks_(1) {
  for (Axis axis : kAxes)
    TRIREME_CHECK(sizes_[axis] >= 1, "layout: ", name_of(axis), " = ", sizes_[axis],
                  ", but an axis has at least one rank");
  for (Axis axis : kAxes)
    TRIREME_CHECK(!__builtin_mul_overflow(ranks_, sizes_[axis], &ranks_),
                  "layout: ", product_text(sizes_), " are more ranks than an int can count");
}

Mesh::Mesh(const AxisSizes& sizes, int ranks) : Mesh(sizes) {
  TRIREME_CHECK(ranks_ == ranks, "layout: ", product_text(sizes_), " = ", ranks_,
                " ranks, but the run has ", ranks,
                "\nmake the product of the [layout] axes equal to the number of ranks (--ranks)");
}

int Mesh::size(AxisSet axes) const {
  int size = 1;
  for (Axis axis : axes.axes()) size *= sizes_[axis];
  return size;
}

PerAxis Mesh::coordinates(int rank) const {
  TRIREME_ASSERT(rank >= 0 && rank < ranks_, "rank ", rank, " of ", ranks_);
  PerAxis coordinates{};
  for (size_t i = kAxes.size(); i-- > 0;) {
    coordinates[kAxes[i]] = rank % sizes_[kAxes[i]];
    rank /= sizes_[kAxes[i]];
  }
  return coordinates;
}

int Mesh::rank_of(const PerAxis& coordinates) const {
  int rank = 0;
  for (Axis axis : kAxes) {
    TRIREME_ASSERT(coordinates[axis] >= 0 && coordinates[axis] < sizes_[axis], name_of(axis), " ",
                   coordinates[axis], " of ", sizes_[axis]);
    rank = rank * sizes_[axis] + coordinates[axis];
  }
  return rank;
}

std::vector<int> Mesh::group(AxisSet axes, int rank) const {
  std::vector<PerAxis> members = {coordinates(rank)};
  for (Axis axis : axes.axes()) {
    std::vector<PerAxis> next;
    for (PerAxis member : members)
      for (member[axis] = 0; member[axis] < sizes_[axis]; ++member[axis]) next.push_back(member);
    members = std::move(next);
  }
  std::vector<int> ranks;  // rising, because outer axes are expanded first
  for (const PerAxis& member : members) ranks.push_back(rank_of(member));
  return ranks;
}

int Mesh::group_rank(AxisSet axes, int rank) const {
  const PerAxis at = coordinates(rank);
  int place = 0;
  for (Axis axis : axes.axes()) place = place * sizes_[axis] + at[axis];
  return place;
}

std::vector<std::vector<int>> Mesh::groups(AxisSet axes) const {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < ranks_; ++rank)
    if (group_rank(axes, rank) == 0) groups.push_back(group(axes, rank));
  return groups;
}

std::string to_string(const Mesh& mesh) {
  std::string text;
  for (Axis axis : kAxes)
    if (mesh.size(axis) > 1)
      text += concat(text.empty() ? "" : ",", name_of(axis), "=", mesh.size(axis));
  return text.empty() ? "one rank" : text;
}

}  // namespace trireme
