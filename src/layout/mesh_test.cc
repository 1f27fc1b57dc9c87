#include "layout/mesh.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/error.h"

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

TEST(Mesh, NumbersRanksOutermostFirst) {
  const Mesh mesh({.pipeline = 2, .replica = 3, .shard = 2, .context = 2, .tensor = 4});
  int rank = 0;
  for (int p = 0; p < 2; ++p)
    for (int r = 0; r < 3; ++r)
      for (int s = 0; s < 2; ++s)
        for (int c = 0; c < 2; ++c)
          for (int t = 0; t < 4; ++t, ++rank) {
            EXPECT_EQ(mesh.coordinates(rank), (PerAxis{p, r, s, c, t}));
            EXPECT_EQ(mesh.rank_of({p, r, s, c, t}), rank);
          }
  EXPECT_EQ(mesh.ranks(), rank);
}

// Every set of axes, on a mesh whose sizes all differ: groups partition the ranks, agree with a
// search by coordinates, and each rank finds itself at its place.
TEST(Mesh, GroupsPartitionTheRanks) {
  const Mesh mesh({.pipeline = 2, .replica = 3, .shard = 1, .context = 4, .tensor = 5});
  for (int bits = 0; bits < 32; ++bits) {
    AxisSet axes;
    for (Axis axis : kAxes)
      if (bits >> static_cast<int>(axis) & 1) axes.insert(axis);
    std::set<int> seen;
    int first_before = -1;
    for (const std::vector<int>& group : mesh.groups(axes)) {
      EXPECT_EQ(static_cast<int>(group.size()), mesh.size(axes));
      EXPECT_GT(group[0], first_before);
      first_before = group[0];
      std::vector<int> searched;
      for (int rank = 0; rank < mesh.ranks(); ++rank) {
        bool member = true;
        for (Axis axis : kAxes)
          member = member && (axes.contains(axis) ||
                              mesh.coordinate(rank, axis) == mesh.coordinate(group[0], axis));
        if (member) searched.push_back(rank);
      }
      EXPECT_EQ(group, searched) << to_string(axes);
      for (size_t place = 0; place < group.size(); ++place) {
        EXPECT_EQ(mesh.group(axes, group[place]), group);
        EXPECT_EQ(mesh.group_rank(axes, group[place]), static_cast<int>(place));
        EXPECT_TRUE(seen.insert(group[place]).second);
      }
    }
    EXPECT_EQ(static_cast<int>(seen.size()), mesh.ranks());
  }
}

TEST(Mesh, RefusesAWrongProductAndNamesEveryFactor) {
  EXPECT_EQ(message_of([] { Mesh({.replica = 2, .tensor = 3}, 8); }),
            "layout: pipeline 1 x replica 2 x shard 1 x context 1 x tensor 3 = 6 ranks, but the "
            "run has 8\n"
            "make the product of the [layout] axes equal to the number of ranks (--ranks)");
  EXPECT_EQ(message_of([] { Mesh({.shard = 0}); }),
            "layout: shard = 0, but an axis has at least one rank");
  EXPECT_NE(message_of([] { Mesh({.replica = 1 << 20, .tensor = 1 << 20}); }).find("more ranks"),
            std::string::npos);
  EXPECT_EQ(Mesh({.replica = 2, .tensor = 3}, 6).ranks(), 6);
}

TEST(Mesh, PrintsAxesAboveOne) {
  EXPECT_EQ(to_string(Mesh()), "one rank");
  EXPECT_EQ(to_string(Mesh({.pipeline = 2, .tensor = 4})), "pipeline=2,tensor=4");
  EXPECT_EQ(to_string(AxisSet{Axis::tensor, Axis::shard}), "shard.tensor");
  for (Axis axis : kAxes) EXPECT_EQ(parse_axis(name_of(axis)), axis);
  EXPECT_EQ(parse_axis("expert"), std::nullopt);
}

}  // namespace
}  // namespace trireme
