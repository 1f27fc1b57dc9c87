// Random life of a table against a plain ordered map with the formulas in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/random.h"
#include "sparse/row_table.h"

namespace trireme {
namespace {

struct OracleRow {
  std::vector<double> w, m0, m1;  // the moments, whichever optimizer they belong to
  double row_moment = 0;
  int64_t count = 0, updates = 0, touched = 0, version = 0;
};

// The formulas once more, for one element at a time, with their settings fixed here.
void oracle_update(const std::string& kind, OracleRow& row, const std::vector<double>& g) {
  const auto dim = static_cast<double>(g.size());
  ++row.updates;
  double squares = 0;
  for (const double x : g) squares += x * x;
  if (kind == "row_adagrad") row.row_moment += squares / dim;
  const auto t = static_cast<double>(row.updates);
  for (size_t d = 0; d < g.size(); ++d) {
    double &w = row.w[d], &m = row.m0[d], &v = row.m1[d];
    if (kind == "sgd") w -= .1 * g[d];
    if (kind == "adagrad") m += g[d] * g[d], w -= .1 * g[d] / (std::sqrt(m) + 1e-10);
    if (kind == "row_adagrad") w -= .1 * g[d] / (std::sqrt(row.row_moment) + 1e-8);
    if (kind == "adam") {
      m = .9 * m + .1 * g[d], v = .999 * v + .001 * g[d] * g[d];
      w -= .1 * m / (1 - std::pow(.9, t)) / (std::sqrt(v / (1 - std::pow(.999, t))) + 1e-8);
    }
    if (kind == "ftrl") {
      const double sigma = (std::sqrt(v + g[d] * g[d]) - std::sqrt(v)) / .1;
      m += g[d] - sigma * w, v += g[d] * g[d];
      w = std::abs(m) <= .5 ? 0 : -(m - (m > 0 ? .5 : -.5)) / ((1 + std::sqrt(v)) / .1 + .25);
    }
  }
}

RowOptimizer optimizer_of(const std::string& kind) {
  if (kind == "ftrl") return FtrlRows{.alpha = .1f, .beta = 1, .l1 = .5f, .l2 = .25f};
  return make_row_optimizer(kind, {{"lr", .1}});
}

class Fuzz {
 public:
  Fuzz(uint64_t seed, const std::string& kind, int64_t dim)
      : random_(seed), kind_(kind), dim_(dim), seed_(seed) {
    // FTRL keeps first weights only through z; decay in double and its l1 are tested elsewhere.
    l2_ = kind != "ftrl" && seed % 2 == 0 ? .125f : 0;
    for (const auto& [threads, parts] : {std::pair(1, 1), {3, 4}, {5, 64}}) {
      threads_.push_back(threads);
      tables_.emplace_back(options(parts));
    }
    pool_ = {0,
             -1,
             -2,
             std::numeric_limits<int64_t>::min(),
             std::numeric_limits<int64_t>::max(),
             int64_t{1} << 32};
    while (pool_.size() < 60) pool_.push_back(static_cast<int64_t>(random_()));
  }

  void run(int steps) {
    for (int step = 0; step < steps && !testing::Test::HasFailure(); ++step) {
      switch (random_() % 8) {
        case 0:
          erase();
          break;
        case 1:
          commit();
          break;
        case 2:
          save_and_load();
          break;
        case 3:
          peek();
          break;
        default:
          train();
      }
    }
    compare();
  }

 private:
  RowTableOptions options(int parts) const {
    return {.name = "fuzz",
            .dim = dim_,
            .seed = seed_,
            .optimizer = optimizer_of(kind_),
            .first = {.kind = kind_ == "ftrl" ? FirstWeights::Kind::zeros
                                              : FirstWeights::Kind::uniform},
            .decay = {l2_ > 0 ? RowDecay::Kind::l2 : RowDecay::Kind::none, l2_},
            .parts = parts,
            // Threads cost more than all else here: every fifth seed runs them even for a few ids.
            .ids_per_thread = seed_ % 5 == 0 ? 1 : 2048};
  }
  std::vector<int64_t> some_keys(size_t most) {
    std::vector<int64_t> keys(random_() % (most + 1));
    for (auto& key : keys)
      key = pool_[std::min(random_() % pool_.size(), random_() % pool_.size())];
    return keys;
  }
  std::vector<double> first_weights(int64_t key) const {
    std::vector<double> w(dim_, 0);
    if (kind_ == "ftrl") return w;
    const uint64_t random = hash_name("table/fuzz", seed_);
    for (int64_t d = 0; d < dim_; ++d) {
      const auto block = philox(
          {static_cast<uint32_t>(key), static_cast<uint32_t>(static_cast<uint64_t>(key) >> 32),
           static_cast<uint32_t>(d / 4), 0},
          {static_cast<uint32_t>(random), static_cast<uint32_t>(random >> 32)});
      w[d] = (2.0 * (block[d % 4] >> 8) / (1 << 24) - 1) / std::sqrt(static_cast<double>(dim_));
    }
    return w;
  }

  // One step of one to three micro-batches; one in eight is pulled and pushed, and then given up.
  void train() {
    std::map<int64_t, std::vector<double>> sums;
    const auto event_time = static_cast<int64_t>(random_() % 1000) - 500;
    for (uint64_t micro = random_() % 3 + 1; micro-- > 0;) {
      const auto ids = some_keys(150);
      std::vector<float> gradients(ids.size() * dim_);
      // Multiples of 1/16: their sums are exact in fp32, so the oracle need not know the order.
      for (auto& g : gradients) g = static_cast<float>(static_cast<int>(random_() % 65) - 32) / 16;
      std::vector<float> rows(gradients.size()), others(gradients.size());
      for (size_t t = 0; t < tables_.size(); ++t) {
        RowLookup& lookup = lookups_[t];
        auto& out = t == 0 ? rows : others;
        tables_[t].pull(ids, {.event_time = event_time, .threads = threads_[t]}, out, lookup);
        ASSERT_TRUE(
            std::ranges::equal(std::as_bytes(std::span(out)), std::as_bytes(std::span(rows))));
        tables_[t].push(lookup, gradients, threads_[t]);
      }
      for (size_t i = 0; i < ids.size(); ++i) {
        auto [row, is_new] = rows_.try_emplace(ids[i]);
        if (is_new) {
          row->second.w = first_weights(ids[i]);
          row->second.m0 = row->second.m1 = std::vector<double>(dim_, 0);
          row->second.touched = event_time;
          tombstones_.erase(ids[i]);
        }
        row->second.touched = std::max(row->second.touched, event_time);
        row->second.version = version_;
        ++row->second.count;
        auto& sum = sums.try_emplace(ids[i], std::vector<double>(dim_, 0)).first->second;
        for (int64_t d = 0; d < dim_; ++d) {
          ASSERT_NEAR(rows[i * dim_ + d], row->second.w[d], tolerance(row->second.w[d]));
          sum[d] += gradients[i * dim_ + d];
        }
      }
    }
    const bool give_up = random_() % 8 == 0;
    for (size_t t = 0; t < tables_.size(); ++t) {
      if (give_up) tables_[t].drop_pending();
      tables_[t].update(threads_[t]);
    }
    if (give_up) return;
    for (auto& [key, sum] : sums) {
      OracleRow& row = rows_[key];
      for (int64_t d = 0; d < dim_; ++d) sum[d] += l2_ * row.w[d];
      oracle_update(kind_, row, sum);
    }
  }

  void peek() {
    auto ids = some_keys(50);
    ids.push_back(static_cast<int64_t>(random_()));  // surely unknown
    std::vector<float> rows(ids.size() * dim_);
    for (size_t t = 0; t < tables_.size(); ++t) {
      tables_[t].peek(ids, threads_[t], rows, lookups_[t]);
      for (size_t i = 0; i < ids.size(); ++i)
        for (int64_t d = 0; d < dim_; ++d) {
          const auto row = rows_.find(ids[i]);
          const double expected = row == rows_.end() ? 0 : row->second.w[d];
          ASSERT_NEAR(rows[i * dim_ + d], expected, tolerance(expected));
        }
    }
  }

  void erase() {
    const auto keys = some_keys(20);
    int64_t erased = 0;
    for (const int64_t key : keys) {
      if (rows_.erase(key) == 0) continue;
      tombstones_[key] = version_;
      ++erased;
    }
    for (auto& table : tables_) ASSERT_EQ(table.erase(keys), erased);
  }

  void commit() {
    compare();
    ++version_;
    const auto through = static_cast<RowVersion>(random_() % version_);
    std::erase_if(tombstones_, [&](const auto& t) { return t.second <= through; });
    for (auto& table : tables_) {
      table.set_version(version_);
      table.forget_tombstones(through);
    }
  }

  // Through the bytes of its tensors, as a checkpoint would keep them, into a new table of other
  // parts.
  void save_and_load() {
    for (size_t t = 0; t < tables_.size(); ++t) {
      RowBatch saved = tables_[t].changed_since(0);
      RowBatch loaded;
      loaded.optimizer = saved.optimizer, loaded.dim = saved.dim, loaded.moments = saved.moments;
      loaded.resize(saved.rows(), static_cast<int64_t>(saved.erased_key.size()));
      const auto from = tensors_of(saved), to = tensors_of(loaded);
      for (size_t i = 0; i < from.size(); ++i) {
        ASSERT_EQ(from[i].bytes.size(), to[i].bytes.size());
        std::ranges::copy(from[i].bytes, to[i].bytes.begin());
      }
      RowTable fresh(options(1 << random_() % 7));
      fresh.apply(loaded);
      fresh.set_version(version_);
      tables_[t] = std::move(fresh);
    }
  }

  void compare() {
    RowBatch first = tables_[0].changed_since(0);
    for (auto& table : tables_) {  // the same bits, whatever threads and parts
      RowBatch batch = table.changed_since(0);
      const auto a = tensors_of(first), b = tensors_of(batch);
      for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].shape, b[i].shape) << a[i].name;
        ASSERT_TRUE(std::ranges::equal(a[i].bytes, b[i].bytes)) << a[i].name;
      }
    }
    ASSERT_EQ(first.rows(), static_cast<int64_t>(rows_.size()));
    int64_t r = 0;
    for (const auto& [key, row] : rows_) {  // both in the order of keys
      ASSERT_EQ(first.key[r], key);
      EXPECT_EQ(first.count[r], row.count);
      EXPECT_EQ(first.updates[r], row.updates);
      EXPECT_EQ(first.touched[r], row.touched);
      EXPECT_EQ(first.version[r], row.version);
      EXPECT_NEAR(first.row_moment[r], row.row_moment, tolerance(row.row_moment));
      for (int64_t d = 0; d < dim_; ++d) {
        ASSERT_NEAR(first.weight[r * dim_ + d], row.w[d], tolerance(row.w[d]))
            << key << " element " << d;
        const float* moments = first.moment.data() + r * first.moments * dim_;
        if (first.moments > 0) {
          ASSERT_NEAR(moments[d], row.m0[d], tolerance(row.m0[d]));
        }
        if (first.moments > 1) {
          ASSERT_NEAR(moments[dim_ + d], row.m1[d], tolerance(row.m1[d]));
        }
      }
      ++r;
    }
    ASSERT_EQ(first.erased_key.size(), tombstones_.size());
    r = 0;
    for (const auto& [key, version] : tombstones_) {
      EXPECT_EQ(first.erased_key[r], key);
      EXPECT_EQ(first.erased_version[r++], version);
    }
  }

  // A row sees at most some 30 updates of a few fp32 roundings each, at the scale of the value or
  // of the step, which is below 1 in all but sgd: 30 * 4 * 6e-8 = 7e-6.
  static double tolerance(double value) { return 2e-5 * (1 + std::abs(value)); }

  std::mt19937_64 random_;
  std::string kind_;
  int64_t dim_;
  uint64_t seed_;
  float l2_;
  std::vector<int> threads_;
  std::vector<RowTable> tables_;
  std::array<RowLookup, 3> lookups_;
  std::vector<int64_t> pool_;
  std::map<int64_t, OracleRow> rows_;
  std::map<int64_t, int64_t> tombstones_;
  RowVersion version_ = 1;
};

class RowTableFuzz : public testing::TestWithParam<const char*> {};

TEST_P(RowTableFuzz, AgreesWithAPlainMap) {
  const std::string kind = GetParam();
  for (int64_t dim = 1; dim <= 67; ++dim) {
    SCOPED_TRACE(testing::Message() << "seed and D " << dim);
    Fuzz(static_cast<uint64_t>(dim), kind, dim).run(30);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, RowTableFuzz,
                         testing::Values("sgd", "adagrad", "row_adagrad", "adam", "ftrl"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace trireme
