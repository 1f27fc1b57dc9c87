// How the ranks of a run are laid out: five named axes, and who stands where.
//
// Ranks are numbered row-major over the axes, outermost first: ranks that differ by one are
// neighbours on the tensor axis. An axis of size one is a no-op everywhere: no group of it
// communicates and no placement on it cuts. The mesh is a value that is handed to whoever asks;
// there is no global one. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

enum class Axis : uint8_t { pipeline, replica, shard, context, tensor };  // outermost first

inline constexpr std::array<Axis, 5> kAxes = {Axis::pipeline, Axis::replica, Axis::shard,
                                              Axis::context, Axis::tensor};

std::string_view name_of(Axis axis);  // as a recipe says it
std::optional<Axis> parse_axis(std::string_view name);

// Some of the axes, in mesh order whatever the order of insertion.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis axis : axes) insert(axis);
  }

  constexpr void insert(Axis axis) { bits_ |= bit(axis); }
  constexpr bool contains(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool operator==(const AxisSet&) const = default;
  std::vector<Axis> axes() const;  // outermost first

 private:
  static constexpr uint8_t bit(Axis axis) {
    return static_cast<uint8_t>(1u << static_cast<int>(axis));
  }
  uint8_t bits_ = 0;
};

std::string to_string(AxisSet axes);  // "replica.shard"; "none"

// One number for each axis: sizes of a mesh, or coordinates of a rank.
struct PerAxis {
  int pipeline, replica, shard, context, tensor;

  int& operator[](Axis axis);
  int operator[](Axis axis) const;
  bool operator==(const PerAxis&) const = default;
};

struct AxisSizes {
  int pipeline = 1, replica = 1, shard = 1, context = 1, tensor = 1;
};

class Mesh {
 public:
  // InputError if a size is below one or the product exceeds int.
  explicit Mesh(const AxisSizes& sizes = {});
  // The same, and InputError if the product of the sizes is not `ranks`.
  Mesh(const AxisSizes& sizes, int ranks);

  int ranks() const { return ranks_; }
  int size(Axis axis) const { return sizes_[axis]; }
  int size(AxisSet axes) const;  // ranks of one group along them

  PerAxis coordinates(int rank) const;  // REQUIRES: 0 <= rank < ranks()
  int coordinate(int rank, Axis axis) const { return coordinates(rank)[axis]; }
  int rank_of(const PerAxis& coordinates) const;

  // The ranks that differ from `rank` at most along `axes`, rising; always contains `rank`.
  std::vector<int> group(AxisSet axes, int rank) const;
  // The place of `rank` in that list.
  int group_rank(AxisSet axes, int rank) const;
  // Every group along `axes`, by rising first rank: the one order in which all ranks build them.
  std::vector<std::vector<int>> groups(AxisSet axes) const;

  bool operator==(const Mesh&) const = default;

 private:
  PerAxis sizes_;
  int ranks_;
};

std::string to_string(const Mesh& mesh);  // "replica=2,tensor=4": axes above one; "one rank"

}  // namespace trireme
