#include "layout/slice.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"

namespace trireme {
namespace {

// The second implementation: the global index of every local element, in local order.
std::vector<std::vector<int64_t>> global_indices(const Slice& slice) {
  std::vector<std::vector<int64_t>> indices = {{}};
  for (const auto& ranges : slice.dims) {
    std::vector<std::vector<int64_t>> next;
    for (const auto& prefix : indices)
      for (const Range& range : ranges)
        for (int64_t i = range.begin; i < range.end; ++i) {
          next.push_back(prefix);
          next.back().push_back(i);
        }
    indices = std::move(next);
  }
  return indices;
}

// For each place in `to` its place in `from`, element by element; absent places are left out.
std::map<int64_t, int64_t> naive_copy(const Slice& from, const Slice& to) {
  std::map<std::vector<int64_t>, int64_t> place;
  const auto from_indices = global_indices(from), to_indices = global_indices(to);
  for (size_t i = 0; i < from_indices.size(); ++i) place[from_indices[i]] = static_cast<int64_t>(i);
  std::map<int64_t, int64_t> copy;
  for (size_t i = 0; i < to_indices.size(); ++i)
    if (auto found = place.find(to_indices[i]); found != place.end())
      copy[static_cast<int64_t>(i)] = found->second;
  return copy;
}

void expect_runs(const Slice& from, const Slice& to) {
  std::map<int64_t, int64_t> copy;
  const std::vector<CopyRun> runs = copy_runs(from, to);
  for (size_t r = 0; r < runs.size(); ++r) {
    ASSERT_GT(runs[r].numel, 0);
    if (r > 0) {
      const CopyRun& before = runs[r - 1];
      ASSERT_GE(runs[r].to, before.to + before.numel) << "order of runs";
      ASSERT_FALSE(before.to + before.numel == runs[r].to &&
                   before.from + before.numel == runs[r].from)
          << "adjacent runs were not merged: " << to_string(from) << " to " << to_string(to);
    }
    for (int64_t i = 0; i < runs[r].numel; ++i) copy[runs[r].to + i] = runs[r].from + i;
  }
  ASSERT_EQ(copy, naive_copy(from, to)) << to_string(from) << " to " << to_string(to);
}

// Every rising list of disjoint, non-empty ranges within [0, extent), touching ones included, and
// the empty list.
std::vector<std::vector<Range>> all_range_lists(int64_t extent, int64_t from = 0) {
  std::vector<std::vector<Range>> lists = {{}};
  for (int64_t begin = from; begin < extent; ++begin)
    for (int64_t end = begin + 1; end <= extent; ++end)
      for (auto& tail : all_range_lists(extent, end)) {
        tail.insert(tail.begin(), Range{begin, end});
        lists.push_back(std::move(tail));
      }
  return lists;
}

TEST(CopyRuns, AgreeWithElementsForAllSlicesOfOneDim) {
  const auto lists = all_range_lists(6);
  for (const auto& from : lists)
    for (const auto& to : lists) expect_runs(Slice{{from}}, Slice{{to}});
}

TEST(CopyRuns, AgreeWithElementsForAllSlicesOfTwoDims) {
  const auto rows = all_range_lists(3), columns = all_range_lists(2);
  for (const auto& a : rows)
    for (const auto& b : columns)
      for (const auto& c : rows)
        for (const auto& d : columns) expect_runs(Slice{{a, b}}, Slice{{c, d}});
}

TEST(CopyRuns, AgreeWithElementsForSlicesOfManyDims) {
  std::mt19937 random(20);
  const std::vector<std::vector<std::vector<Range>>> choices = {
      all_range_lists(4), all_range_lists(1), all_range_lists(3), all_range_lists(5)};
  for (int trial = 0; trial < 3000; ++trial) {
    Slice from, to;
    for (const auto& lists : choices) {
      from.dims.push_back(lists[random() % lists.size()]);
      // Half of the dims are equal on both sides, so that trailing dims fuse.
      to.dims.push_back(random() % 2 ? from.dims.back() : lists[random() % lists.size()]);
    }
    expect_runs(from, to);
  }
}

TEST(CopyRuns, ScalarIsOneElementAndWholeIsOneRun) {
  EXPECT_EQ(copy_runs(Slice{}, Slice{}).size(), 1u);
  const Slice whole = Slice::whole({7, 5, 3});
  const std::vector<CopyRun> runs = copy_runs(whole, whole);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].numel, 105);
}

// A gathered dim 0 needs one run whatever the size of a row; a cost that grew with elements would
// never end here.
TEST(CopyRuns, CostIsByStretchAndNotByElement) {
  const int64_t columns = int64_t{1} << 40;
  const std::vector<CopyRun> runs =
      copy_runs(Slice::whole({1000, columns}), Slice::box({{10, 990}, {0, columns}}));
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].from, 10 * columns);
  EXPECT_EQ(runs[0].to, 0);
  EXPECT_EQ(runs[0].numel, 980 * columns);
}

TEST(CopyRuns, RefusesSlicesOfDifferentTensors) {
  EXPECT_THROW(copy_runs(Slice::whole({2}), Slice::whole({2, 1})), InputError);
}

TEST(Shape, NumelCountsAndRefuses) {
  EXPECT_EQ(numel_of({}), 1);
  EXPECT_EQ(numel_of({3, 4}), 12);
  EXPECT_EQ(numel_of({int64_t{1} << 62, int64_t{1} << 62, 0}), 0);
  EXPECT_THROW(numel_of({int64_t{1} << 32, int64_t{1} << 31}), InputError);
  EXPECT_THROW(numel_of({0, -1}), InputError);
}

TEST(Slice, PrintsAndMeasures) {
  const Slice slice{{{{0, 128}, {256, 384}}, {{0, 64}}}};
  EXPECT_EQ(to_string(slice), "[0:128+256:384, 0:64]");
  EXPECT_EQ(slice.extents(), (Shape{256, 64}));
  EXPECT_EQ(slice.numel(), 256 * 64);
  EXPECT_EQ(to_string(Shape{4096, 256}), "[4096, 256]");
  EXPECT_TRUE(Slice::box({{3, 3}, {0, 9}}).empty());
}

}  // namespace
}  // namespace trireme
