#include "sparse/row_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "sparse/workers.h"

namespace trireme {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(),
                  kMost = std::numeric_limits<int64_t>::max();
// Keys that other systems use as sentinels, or cut to 32 or 53 bits.
const std::vector<int64_t> kStrangeKeys = {
    0, -1, -2, kLeast, kMost, int64_t{1} << 32, (int64_t{1} << 53) + 1};

std::vector<float> pull(RowTable& table, const std::vector<int64_t>& ids, RowLookup& lookup,
                        const PullOptions& options = {}) {
  std::vector<float> rows(ids.size() * table.dim());
  table.pull(ids, options, rows, lookup);
  return rows;
}

RowLookup lookup_of(RowTable& table, const std::vector<int64_t>& ids) {
  RowLookup lookup;
  pull(table, ids, lookup);
  return lookup;
}

std::vector<float> peek(const RowTable& table, const std::vector<int64_t>& ids) {
  RowLookup lookup;
  std::vector<float> rows(ids.size() * table.dim());
  table.peek(ids, 1, rows, lookup);
  return rows;
}

void step(RowTable& table, const std::vector<int64_t>& ids, const std::vector<float>& gradients,
          int threads = 1) {
  RowLookup lookup;
  pull(table, ids, lookup, {.threads = threads});
  table.push(lookup, gradients, threads);
  table.update(threads);
}

bool same(RowBatch a, RowBatch b) {
  const auto tensors = tensors_of(a), others = tensors_of(b);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].shape != others[i].shape ||
        !std::ranges::equal(tensors[i].bytes, others[i].bytes))
      return false;
  return a.optimizer == b.optimizer;
}

// A row with these weights and nothing else to its name.
RowBatch one_row(const RowTable& table, int64_t key, std::vector<float> weights) {
  RowBatch batch;
  batch.optimizer = kind_of(table.options().optimizer);
  batch.dim = table.dim();
  batch.moments = moments_of(table.options().optimizer);
  batch.resize(1, 0);
  batch.key[0] = key;
  batch.weight = std::move(weights);
  batch.version[0] = 1;
  return batch;
}

TEST(RowTable, TreatsStrangeKeysLikeAnyOther) {
  RowTable table({.name = "t", .dim = 2});
  RowLookup lookup;
  const auto rows = pull(table, kStrangeKeys, lookup);
  EXPECT_EQ(table.rows(), 7);
  EXPECT_EQ(lookup.unique_keys(), 7);
  EXPECT_EQ(peek(table, kStrangeKeys), rows);
  for (const int64_t key : kStrangeKeys) EXPECT_EQ(table.find(key)->key, key);
  EXPECT_FALSE(table.find(1));
  EXPECT_EQ(table.erase(kStrangeKeys), 7);
  EXPECT_EQ(table.rows(), 0);
}

// By the formula, written once more; then that neither parts, threads nor the order of insertion
// matter.
TEST(RowTable, FirstWeightsAreAFunctionOfSeedNameKeyAndElement) {
  const int64_t dim = 7, key = -3;
  RowTable table({.name = "ads", .dim = dim, .seed = 9});
  RowLookup lookup;
  const auto rows = pull(table, {key}, lookup);
  const uint64_t random = hash_name("table/ads", 9);
  for (int64_t d = 0; d < dim; ++d) {
    const auto block = philox({0xfffffffd, 0xffffffff, static_cast<uint32_t>(d / 4), 0},
                              {static_cast<uint32_t>(random), static_cast<uint32_t>(random >> 32)});
    EXPECT_FLOAT_EQ(rows[d], (2.0 * (block[d % 4] >> 8) / (1 << 24) - 1) / std::sqrt(7.0));
  }
  RowTable other({.name = "ads", .dim = dim, .seed = 9, .parts = 1});
  EXPECT_EQ(pull(other, {5, key, 4}, lookup)[dim + 3], rows[3]);
  for (const RowTableOptions& options : {RowTableOptions{.name = "ads", .dim = dim, .seed = 8},
                                         RowTableOptions{.name = "adz", .dim = dim, .seed = 9}}) {
    RowTable different(options);
    EXPECT_NE(pull(different, {key}, lookup), rows);
  }
}

// 100,000 numbers: the standard error of their mean is .0018 of the range, of their variance
// .00094; five of each.
TEST(RowTable, FirstWeightsAreUniform) {
  RowTable table({.name = "t", .dim = 10, .first = {.range = 2}});
  std::vector<int64_t> ids(10'000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  RowLookup lookup;
  double sum = 0, squares = 0, least = 0, most = 0;
  for (const float x : pull(table, ids, lookup)) {
    sum += x / 2;
    squares += x / 2 * x / 2;
    least = std::min<double>(least, x);
    most = std::max<double>(most, x);
  }
  EXPECT_NEAR(sum / 1e5, 0, .009);
  EXPECT_NEAR(squares / 1e5, 1.0 / 3, .005);
  EXPECT_GE(least, -2);
  EXPECT_LT(least, -1.999);
  EXPECT_LT(most, 2);
  EXPECT_GT(most, 1.999);
}

TEST(RowTable, PeekChangesNothingAndReadsTheDefaultRow) {
  RowTable table({.name = "t", .dim = 2, .default_row = {5, 6}});
  RowLookup lookup;
  const auto known = pull(table, {1}, lookup, {.event_time = 3});
  const auto before = table.changed_since(0);
  EXPECT_EQ(peek(table, {2, 1, 2}), (std::vector<float>{5, 6, known[0], known[1], 5, 6}));
  EXPECT_TRUE(same(table.changed_since(0), before));
  RowTable zeros({.name = "t", .dim = 2});
  EXPECT_EQ(peek(zeros, {1}), (std::vector<float>{0, 0}));
  EXPECT_EQ(zeros.rows(), 0);
}

TEST(RowTable, AnEmptyBatchIsABatch) {
  RowTable table({.name = "t", .dim = 3});
  RowLookup lookup;
  pull(table, {}, lookup, {.threads = 3});
  table.push(lookup, {}, 3);
  table.update(3);
  EXPECT_EQ(table.rows(), 0);
  EXPECT_TRUE(peek(table, {}).empty());
}

// Adagrad, lr 1, gradient 1 twice: one update of 2 moves w by 1; two updates would move it
// by 1.7071.
TEST(RowTable, DuplicatesAreSummedToOneUpdate) {
  RowTable table({.name = "t",
                  .optimizer = AdagradRows{.lr = 1},
                  .first = {.kind = FirstWeights::Kind::zeros}});
  step(table, {7, 8, 7}, {1, 0, 1});
  EXPECT_NEAR(table.find(7)->weights[0], -1, 1e-6);
  EXPECT_EQ(table.find(7)->updates, 1u);
  EXPECT_EQ(table.find(7)->count, 2u);
  EXPECT_EQ(table.find(8)->weights[0], 0);
}

// Float addition is not associative: 1e8 swallows 1 unless -1e8 comes between them.
TEST(RowTable, AddsInTheOrderOfPositions) {
  const std::vector<float> gradients = {1e8f, 1, -1e8f, 1};
  float expected = 0;
  for (const float g : gradients) expected += g;
  ASSERT_EQ(expected, 1);
  for (const int threads : {1, 2, 5, 8}) {
    RowTable table({.name = "t",
                    .optimizer = SgdRows{.lr = 1},
                    .first = {.kind = FirstWeights::Kind::zeros},
                    .ids_per_thread = 1});
    std::vector<int64_t> ids(400, 7);
    std::vector<float> many(400);
    for (size_t i = 0; i < 4; ++i) many[i * 100] = gradients[i];
    step(table, ids, many, threads);
    EXPECT_EQ(table.find(7)->weights[0], -expected) << threads << " threads";
  }
}

TEST(RowTable, APushInPiecesSumsAsTheWhole) {
  const RandomStream random(3, "gradients");
  std::vector<int64_t> ids(300);
  std::vector<float> gradients(300 * 5);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(random.below(i, 40));
  for (size_t i = 0; i < gradients.size(); ++i)
    gradients[i] = static_cast<float>(random.normal(1000 + i));
  const RowTableOptions options{.name = "t", .dim = 5, .optimizer = AdamRows{}};
  RowTable whole(options);
  step(whole, ids, gradients);
  for (const size_t pieces : {2, 3, 7}) {
    RowTable table(options);
    RowLookup lookup;
    for (size_t piece = 0; piece < pieces; ++piece) {
      const size_t begin = 300 * piece / pieces, end = 300 * (piece + 1) / pieces;
      pull(table, {ids.begin() + begin, ids.begin() + end}, lookup);
      table.push(lookup, std::span(gradients).subspan(begin * 5, (end - begin) * 5), 1);
    }
    EXPECT_TRUE(table.pending());
    table.update(2);
    EXPECT_FALSE(table.pending());
    EXPECT_TRUE(same(table.changed_since(0), whole.changed_since(0))) << pieces << " pieces";
  }
}

TEST(RowTable, ClipsByTheNormOfTheSums) {
  RowTable table({.name = "t",
                  .dim = 2,
                  .optimizer = SgdRows{.lr = 1},
                  .first = {.kind = FirstWeights::Kind::zeros}});
  RowLookup lookup;
  pull(table, {1, 2, 1}, lookup);
  table.push(lookup, std::vector<float>{1, 0, 0, 4, 2, 0}, 1);
  EXPECT_EQ(table.pending_squared_norm(), 9 + 16);
  table.update(1, 0.5f);
  EXPECT_EQ(peek(table, {1, 2}), (std::vector<float>{-1.5, 0, 0, -2}));
  pull(table, {1}, lookup);
  table.push(lookup, std::vector<float>{NAN, 0}, 1);
  EXPECT_FALSE(std::isfinite(table.pending_squared_norm()));
  table.drop_pending();
  table.update(1);
  EXPECT_EQ(peek(table, {1}), (std::vector<float>{-1.5, 0}));
}

// Golden values: row-wise Adagrad, lr .1, decay .1, w (1, -1), gradients (1, 0) then (1, 1).
TEST(RowTable, DecaysOnTouchInBothForms) {
  struct Case {
    RowDecay::Kind kind;
    double accumulator, w0, w1;
  };
  for (const Case& c : {Case{RowDecay::Kind::l2, 1.605760, .773464, -1.058321},
                        Case{RowDecay::Kind::decoupled, 1.5, .758443, -1.061750}}) {
    RowTable table(
        {.name = "t", .dim = 2, .optimizer = RowAdagradRows{.lr = .1f}, .decay = {c.kind, .1f}});
    table.apply(one_row(table, 5, {1, -1}));
    table.apply(one_row(table, 6, {1, -1}));
    step(table, {5}, {1, 0});
    step(table, {5}, {1, 1});
    EXPECT_NEAR(table.find(5)->row_moment, c.accumulator, 1e-6);
    EXPECT_NEAR(table.find(5)->weights[0], c.w0, 1e-6);
    EXPECT_NEAR(table.find(5)->weights[1], c.w1, 1e-6);
    EXPECT_EQ(table.find(6)->weights[0], 1);  // untouched
  }
}

TEST(RowTable, CountsOccurrencesAndKeepsTheNewestTime) {
  RowTable table({.name = "t"});
  RowLookup lookup;
  pull(table, {1, 2, 1}, lookup, {.event_time = -10});
  EXPECT_EQ(table.find(1)->touched, -10);
  pull(table, {1}, lookup, {.event_time = 100});
  pull(table, {1, 1}, lookup, {.event_time = 50});
  EXPECT_EQ(table.find(1)->count, 5u);
  EXPECT_EQ(table.find(1)->touched, 100);
  EXPECT_EQ(table.find(1)->updates, 0u);
  EXPECT_EQ(table.find(2)->touched, -10);
}

TEST(RowTable, StampsEveryChangeWithTheCommitItBelongsTo) {
  RowTable table({.name = "t"});
  step(table, {1, 2, 3}, {1, 1, 1});
  table.set_version(2);
  step(table, {2, 4}, {1, 1});
  table.set_version(3);
  RowLookup lookup;
  pull(table, {3}, lookup);
  table.erase(std::vector<int64_t>{1, 99});
  EXPECT_EQ(table.keys_changed_since(0), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(table.keys_changed_since(1), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(table.keys_changed_since(2), (std::vector<int64_t>{3}));
  const RowBatch delta = table.changed_since(2);
  EXPECT_EQ(delta.erased_key, (std::vector<int64_t>{1}));
  EXPECT_EQ(delta.erased_version, (std::vector<int64_t>{3}));
  table.set_version(4);  // a commit between pull and update: the row changes again
  table.push(lookup_of(table, {2}), std::vector<float>{1}, 1);
  table.set_version(5);
  table.update(1);
  EXPECT_EQ(table.find(2)->version, 5u);
  table.forget_tombstones(2);
  EXPECT_EQ(table.stats().tombstones, 1);
  table.forget_tombstones(3);
  EXPECT_EQ(table.stats().tombstones, 0);
  EXPECT_THROW(table.set_version(4), InternalError);
}

TEST(RowTable, AKeyThatComesBackStartsAfresh) {
  RowTable table({.name = "t", .optimizer = AdagradRows{}});
  RowLookup lookup;
  const auto first = pull(table, {1}, lookup);
  step(table, {1}, {1});
  table.set_version(2);
  table.erase(std::vector<int64_t>{1});
  EXPECT_EQ(peek(table, {1}), (std::vector<float>{0}));
  EXPECT_EQ(pull(table, {1}, lookup), first);
  const auto row = *table.find(1);
  EXPECT_EQ(row.count, 1u);
  EXPECT_EQ(row.updates, 0u);
  EXPECT_EQ(row.moments[0], 0);
  EXPECT_EQ(row.version, 2u);
  EXPECT_TRUE(table.changed_since(0).erased_key.empty());
  EXPECT_EQ(table.stats().inserted, 2);
  EXPECT_EQ(table.stats().erased, 1);
}

TEST(RowTable, ErasedRowsMakeRoomForOthers) {
  RowTable table({.name = "t", .dim = 8});
  RowLookup lookup;
  int64_t reserved = 0, index = 0;
  for (int64_t cycle = 0; cycle < 40; ++cycle) {
    std::vector<int64_t> ids(5000);
    for (int64_t i = 0; i < 5000; ++i) ids[i] = cycle * 1'000'000 + i;
    pull(table, ids, lookup);
    EXPECT_EQ(table.erase(ids), 5000);
    table.forget_tombstones(table.version());
    if (cycle == 2) reserved = table.stats().reserved_bytes, index = table.stats().index_bytes;
  }
  EXPECT_EQ(table.rows(), 0);
  EXPECT_EQ(table.stats().reserved_bytes, reserved);
  EXPECT_LE(table.stats().index_bytes, index * 1.2);
}

TEST(RowTable, AFullSaveAndItsDeltasGiveTheTable) {
  const RowTableOptions options{.name = "t", .dim = 3, .optimizer = FtrlRows{.l1 = .1f}};
  RowTable table(options), follower(options);
  const RandomStream random(1, "deltas");
  RowBatch full;
  for (RowVersion commit = 1; commit <= 6; ++commit) {
    std::vector<int64_t> ids(60), gone(10);
    std::vector<float> gradients(180);
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<int64_t>(random.below(commit * 1000 + i, 80));
    for (size_t i = 0; i < gone.size(); ++i)
      gone[i] = static_cast<int64_t>(random.below(commit * 1000 + 500 + i, 80));
    for (size_t i = 0; i < gradients.size(); ++i)
      gradients[i] = static_cast<float>(random.normal(commit * 1000 + i));
    step(table, ids, gradients);
    table.erase(gone);
    follower.apply(table.changed_since(commit - 1));
    EXPECT_TRUE(same(follower.changed_since(0), table.changed_since(0))) << "commit " << commit;
    EXPECT_EQ(follower.version(), commit);
    follower.apply(table.changed_since(0));  // older and equal rows change nothing
    EXPECT_TRUE(same(follower.changed_since(0), table.changed_since(0)));
    table.set_version(commit + 1);
  }
}

// An old tombstone does not take a newer row away, nor an old row a newer tombstone; of equals,
// what is here stays.
TEST(RowTable, TheNewerOfRowAndTombstoneWins) {
  RowTable table({.name = "t"});
  RowBatch row = one_row(table, 1, {4}), tombstone = one_row(table, 1, {4});
  tombstone.resize(0, 1);
  tombstone.erased_key[0] = 1;
  row.version[0] = 5;
  tombstone.erased_version[0] = 4;
  table.apply(row);
  table.apply(tombstone);
  EXPECT_EQ(peek(table, {1})[0], 4);
  tombstone.erased_version[0] = 5;
  table.apply(tombstone);
  EXPECT_EQ(peek(table, {1})[0], 4);
  tombstone.erased_version[0] = 6;
  table.apply(tombstone);
  row.version[0] = 6;
  table.apply(row);
  EXPECT_FALSE(table.find(1));
  EXPECT_EQ(table.version(), 6u);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(RowTable, RefusesRowsThatDoNotFit) {
  RowTable table({.name = "t", .dim = 2});
  const auto refuses = [&](const std::function<void(RowBatch&)>& damage) {
    RowBatch batch = one_row(table, 1, {1, 2});
    damage(batch);
    const auto message = message_of([&] { table.apply(batch); });
    EXPECT_EQ(table.rows(), 0);
    return message;
  };
  EXPECT_EQ(refuses([](RowBatch& b) { b.optimizer = "adam"; }),
            "table 't': loading rows of optimizer adam into a table of sgd; their moments do not "
            "go together");
  EXPECT_EQ(refuses([](RowBatch& b) { b.dim = 3; }),
            "table 't': loading rows of dim 3 and 0 moments into a table of dim 2 and 0");
  EXPECT_EQ(refuses([](RowBatch& b) { b.weight.pop_back(); }),
            "table 't': loading rows: 'weight' has 1 elements, expected [1, 2]");
  EXPECT_EQ(
      refuses([](RowBatch& b) { b.version[0] = 0; }),
      "table 't': loading rows: version[0] is 0, expected 1 to 2^32 - 1; the rows are damaged");
  EXPECT_NE(refuses([](RowBatch& b) { b.count[0] = -1; }), "");
  EXPECT_NE(refuses([](RowBatch& b) { b.updates[0] = int64_t{1} << 32; }), "");
  EXPECT_NE(refuses([](RowBatch& b) { b.erased_key.push_back(3); }), "");
}

TEST(RowTable, RefusesOptionsThatMakeNoSense) {
  const auto refuses = [](const RowTableOptions& options) {
    return message_of([&] { RowTable table(options); });
  };
  EXPECT_EQ(refuses({.name = "t", .dim = 0}), "table 't': dim must be 1 to 1048576, got 0");
  EXPECT_EQ(refuses({.name = "t", .parts = 3}),
            "table 't': parts must be a power of two up to 256, got 3");
  EXPECT_NE(refuses({.name = "t", .dim = 2, .default_row = {1}}), "");
  EXPECT_NE(refuses({.name = "t", .first = {.range = -1}}), "");
  EXPECT_NE(refuses({.name = "t", .ids_per_thread = 0}), "");
  EXPECT_NE(refuses({.name = "t", .decay = {RowDecay::Kind::l2, -1}}), "");
  EXPECT_NE(refuses({.name = "t", .optimizer = FtrlRows{.alpha = 0}}), "");
  EXPECT_EQ(
      refuses({.name = "t", .optimizer = FtrlRows{}, .decay = {RowDecay::Kind::decoupled, .1f}}),
      "table 't': decoupled decay needs an optimizer with an lr, and ftrl has none; use its own "
      "l2");
}

TEST(RowTable, RefusesLookupsThatNoLongerHold) {
  RowTable table({.name = "t"}), other({.name = "u"});
  RowLookup lookup;
  const std::vector<float> gradient = {1};
  pull(table, {1}, lookup);
  EXPECT_THROW(other.push(lookup, gradient, 1), InternalError);
  EXPECT_THROW(table.push(lookup, std::vector<float>{1, 2}, 1), InternalError);
  table.push(lookup, gradient, 1);
  EXPECT_THROW(table.erase(std::vector<int64_t>{1}), InternalError);  // pinned
  table.update(1);
  table.erase(std::vector<int64_t>{1});
  EXPECT_THROW(table.push(lookup, gradient, 1), InternalError);
  std::vector<float> row(1);
  table.peek(std::vector<int64_t>{1}, 1, row, lookup);
  EXPECT_THROW(table.push(lookup, gradient, 1), InternalError);
}

TEST(RowTable, TellsItsRowsBytesAndNorms) {
  RowTable table({.name = "t", .dim = 16, .optimizer = RowAdagradRows{}});
  RowBatch batch = one_row(table, 1, std::vector<float>(16, 0));
  batch.weight[3] = -4;
  table.apply(batch);
  batch.key[0] = 2;
  batch.weight[3] = 3;
  table.apply(batch);
  const RowTableStats stats = table.stats();
  EXPECT_EQ(stats.rows, 2);
  EXPECT_EQ(stats.inserted, 0);
  EXPECT_EQ(stats.record_bytes, 64 + 32);
  EXPECT_DOUBLE_EQ(stats.weight_norm, 5);
  EXPECT_EQ(stats.largest_weight, 4);
  EXPECT_GE(stats.reserved_bytes, 2 * 96);
  EXPECT_EQ(RowTable({.dim = 1, .optimizer = FtrlRows{}}).stats().record_bytes,
            64);  // one line holds it all
  int64_t visited = 0;
  table.for_each_row([&](const RowView& row) { visited += row.key; });
  EXPECT_EQ(visited, 3);
}

// Readers beside readers: for the thread sanitizer, and the values.
TEST(RowTable, ManyMayPeekAtOnce) {
  RowTable table({.name = "t", .dim = 4, .ids_per_thread = 100});
  std::vector<int64_t> ids(3000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i % 2000);
  RowLookup lookup;
  const auto expected = pull(table, ids, lookup, {.threads = 3});
  std::vector<std::jthread> readers;
  std::array<std::vector<float>, 3> seen;
  for (auto& rows : seen)
    readers.emplace_back([&] {
      RowLookup mine;
      rows.resize(expected.size());
      for (int round = 0; round < 5; ++round) table.peek(ids, 2, rows, mine);
    });
  readers.clear();
  for (const auto& rows : seen) EXPECT_EQ(rows, expected);
}

TEST(RunJobs, RunsEachOnceAndPassesTheFirstErrorOn) {
  for (const int threads : {0, 1, 4}) {
    std::vector<int> runs(50);
    run_jobs(threads, 50, [&](int64_t job, int) { ++runs[job]; });
    EXPECT_EQ(runs, std::vector<int>(50, 1));
    run_jobs(threads, 0, [&](int64_t, int) { FAIL(); });
    EXPECT_THROW(run_jobs(threads, 50,
                          [](int64_t job, int) {
                            if (job == 30) throw RunError("thirty");
                          }),
                 RunError);
  }
}

}  // namespace
}  // namespace trireme
