#include "sparse/row_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "sparse/row_table_part.h"
#include "sparse/workers.h"

namespace trireme {
namespace {

constexpr int64_t kPrefetchRows =
    12;  // a row's way from memory takes about as long as a dozen are worked on

uint32_t add_saturating(uint32_t a, uint32_t b) {
  const uint32_t sum = a + b;
  return sum < a ? std::numeric_limits<uint32_t>::max() : sum;
}

// The learning rate that decay apart from the gradient uses, null if the optimizer has none.
template <class Optimizer>
const float* rate_of(const Optimizer& optimizer) {
  if constexpr (requires { optimizer.lr; }) return &optimizer.lr;
  else return nullptr;
}

void check_options(const RowTableOptions& o) {
  constexpr int64_t kMostDim = int64_t{1} << 20;
  TRIREME_CHECK(o.dim >= 1 && o.dim <= kMostDim, "table '", o.name, "': dim must be 1 to ",
                kMostDim, ", got ", o.dim);
  TRIREME_CHECK(
      o.parts >= 1 && o.parts <= 256 && std::has_single_bit(static_cast<unsigned>(o.parts)),
      "table '", o.name, "': parts must be a power of two up to 256, got ", o.parts);
  TRIREME_CHECK(o.default_row.empty() || static_cast<int64_t>(o.default_row.size()) == o.dim,
                "table '", o.name, "': the default row has ", o.default_row.size(),
                " elements, expected dim = ", o.dim);
  TRIREME_CHECK(o.first.range >= 0, "table '", o.name,
                "': the range of first weights must not be negative, got ", o.first.range);
  TRIREME_CHECK(o.ids_per_thread >= 1, "table '", o.name,
                "': ids_per_thread must be positive, got ", o.ids_per_thread);
  TRIREME_CHECK(o.decay.rate >= 0, "table '", o.name, "': decay must not be negative, got ",
                o.decay.rate);
  std::visit(
      [&](const auto& optimizer) {
        optimizer.check();
        TRIREME_CHECK(o.decay.kind != RowDecay::Kind::decoupled || rate_of(optimizer) != nullptr,
                      "table '", o.name, "': decoupled decay needs an optimizer with an lr, and ",
                      optimizer.kKind, " has none; use its own l2");
      },
      o.optimizer);
}

}  // namespace

RowTable::RowTable(RowTableOptions options) : options_(std::move(options)) {
  check_options(options_);
  moments_ = moments_of(options_.optimizer);
  part_bits_ = std::countr_zero(static_cast<unsigned>(options_.parts));
  salt_ = hash_name(concat("table-index/", options_.name), options_.seed);
  const uint64_t random = hash_name(concat("table/", options_.name), options_.seed);
  random_ = {static_cast<uint32_t>(random), static_cast<uint32_t>(random >> 32)};
  store_ = std::make_unique<RowStore>(dim() * (1 + moments_));
  for (int part = 0; part < options_.parts; ++part)
    parts_.push_back(std::make_unique<Part>(*store_, salt_, part_bits_, part, dim()));
}

RowTable::~RowTable() = default;
RowTable::RowTable(RowTable&&) noexcept = default;
RowTable& RowTable::operator=(RowTable&&) noexcept = default;

int64_t RowTable::rows() const {
  int64_t rows = 0;
  for (const auto& part : parts_) rows += part->index.size();
  return rows;
}

RowTable::Part& RowTable::part_of(uint64_t hash) const {
  return *parts_[part_bits_ == 0 ? 0 : hash >> (64 - part_bits_)];
}

int RowTable::threads_worth(int threads, int64_t ids) const {
  return static_cast<int>(
      std::clamp<int64_t>(ids / options_.ids_per_thread, 1, std::max(threads, 1)));
}

RowState RowTable::state(uint32_t row) {
  RowHeader& header = store_->header(row);
  float* floats = store_->floats(row);
  return {floats, floats + dim(), header.row_moment, header.updates, dim()};
}

// Resolves the ids, part by part: found(part, keys, hashes, counts, rows) sees the distinct keys of
// each and the rows that exist, and may fill in others. Then copies the weights.
template <class Found>
void RowTable::resolve(std::span<const int64_t> ids, int threads, std::span<float> rows,
                       RowLookup& lookup, Found&& found) const {
  TRIREME_ASSERT(rows.size() == ids.size() * static_cast<size_t>(dim()), "table '", options_.name,
                 "': room for ", rows.size(), " elements, ", ids.size(), " ids of ", dim());
  threads = threads_worth(threads, static_cast<int64_t>(ids.size()));
  lookup.partition(ids, salt_, part_bits_, threads);
  while (static_cast<int>(lookup.scratch_.size()) < threads)
    lookup.scratch_.push_back(std::make_unique<RowLookup::Scratch>());
  run_jobs(threads, options_.parts, [&](int64_t number, int thread) {
    RowLookup::Scratch& scratch = *lookup.scratch_[thread];
    const KeyNumbers& numbers = lookup.number_keys(number, salt_, scratch);
    const auto found_rows = lookup.rows_of(lookup.parts_[number]);
    Part& part = *parts_[number];
    part.index.find_all(numbers.keys(), numbers.hashes(), found_rows);
    found(part, numbers.keys(), numbers.hashes(), scratch.counts, found_rows);
  });
  lookup.ids_ = {};
  lookup.table_ = store_.get();
  lookup.structure_ = structure_;
  copy_rows(lookup, threads, rows);
}

void RowTable::pull(std::span<const int64_t> ids, const PullOptions& pull, std::span<float> rows,
                    RowLookup& lookup) {
  store_->reserve(static_cast<int64_t>(ids.size()), options_.parts);
  lookup.trained_ = true;
  resolve(ids, pull.threads, rows, lookup,
          [&](Part& part, std::span<const int64_t> keys, std::span<const uint64_t> hashes,
              std::span<const uint32_t> counts, std::span<uint32_t> found) {
            for (size_t i = 0; i < found.size(); ++i) {
              const bool is_new = found[i] == kNoRow;
              if (is_new) found[i] = insert(part, keys[i], hashes[i]);
              RowHeader& header = store_->header(found[i]);
              header.count = add_saturating(header.count, counts[i]);
              header.touched = is_new ? pull.event_time : std::max(header.touched, pull.event_time);
              header.version = version_;
            }
          });
}

void RowTable::peek(std::span<const int64_t> ids, int threads, std::span<float> rows,
                    RowLookup& lookup) const {
  lookup.trained_ = false;
  resolve(ids, threads, rows, lookup, [](auto&&...) {});
}

void RowTable::copy_rows(const RowLookup& lookup, int threads, std::span<float> rows) const {
  const std::vector<float> zeros(options_.default_row.empty() ? dim() : 0);
  const float* absent = zeros.empty() ? options_.default_row.data() : zeros.data();
  const int64_t n = lookup.size(), stretches = threads;
  const size_t row_bytes = dim() * sizeof(float);
  run_jobs(threads, stretches, [&](int64_t stretch, int) {
    const int64_t end = n * (stretch + 1) / stretches;
    for (int64_t i = n * stretch / stretches; i < end; ++i) {
      if (i + kPrefetchRows < end) {
        const uint32_t ahead = lookup.row_at(i + kPrefetchRows);
        if (ahead != kNoRow) __builtin_prefetch(store_->floats(ahead));
      }
      const uint32_t row = lookup.row_at(i);
      std::memcpy(&rows[i * dim()], row == kNoRow ? absent : store_->floats(row), row_bytes);
    }
  });
}

void RowTable::push(const RowLookup& lookup, std::span<const float> gradients, int threads) {
  TRIREME_ASSERT(lookup.table_ == store_.get(), "table '", options_.name,
                 "': this lookup is another table's");
  TRIREME_ASSERT(lookup.trained_, "table '", options_.name,
                 "': a lookup of peek() takes no gradients");
  TRIREME_ASSERT(lookup.structure_ == structure_, "table '", options_.name,
                 "': rows were erased or loaded after the pull");
  TRIREME_ASSERT(static_cast<int64_t>(gradients.size()) == lookup.size() * dim(), "table '",
                 options_.name, "': ", gradients.size(), " gradients for ", lookup.size(),
                 " ids of ", dim());
  run_jobs(threads_worth(threads, lookup.size()), options_.parts, [&](int64_t number, int) {
    const RowLookup::Part& batch = lookup.parts_[number];
    PendingGradients& pending = parts_[number]->pending;
    const auto slots = pending.slots_of(lookup.rows_of(batch));
    for (uint32_t place = batch.begin; place < batch.end; ++place) {
      const uint32_t i = lookup.position(place);
      float* sum = pending.sum(slots[lookup.unique_at_[i] - batch.begin]);
      const float* gradient = &gradients[static_cast<size_t>(i) * dim()];
      for (int64_t d = 0; d < dim(); ++d) sum[d] += gradient[d];
    }
  });
}

double RowTable::pending_squared_norm() const {
  double norm = 0;
  for (const auto& part : parts_)
    for (uint32_t slot = part->pending.begin(); slot < part->pending.end(); ++slot)
      for (int64_t d = 0; d < dim(); ++d) {
        const double g = part->pending.sum(slot)[d];
        norm += g * g;
      }
  return norm;
}

bool RowTable::pending() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const auto& part) { return !part->pending.empty(); });
}

template <class Optimizer>
void RowTable::update_part(Part& part, const Optimizer& optimizer, float gradient_scale) {
  PendingGradients& pending = part.pending;
  const RowDecay decay = options_.decay;
  const float* rate = rate_of(optimizer);
  const float keep = decay.kind == RowDecay::Kind::decoupled ? 1 - *rate * decay.rate : 1;
  for (uint32_t slot = pending.begin(); slot < pending.end(); ++slot) {
    if (slot + kPrefetchRows < pending.end()) store_->prefetch(pending.row(slot + kPrefetchRows));
    RowHeader& header = store_->header(pending.row(slot));
    header.updates = add_saturating(header.updates, 1);
    header.version = version_;
    const RowState row = state(pending.row(slot));
    float* gradient = pending.sum(slot);
    if (gradient_scale != 1)
      for (int64_t d = 0; d < row.dim; ++d) gradient[d] *= gradient_scale;
    if (decay.kind == RowDecay::Kind::l2)
      for (int64_t d = 0; d < row.dim; ++d) gradient[d] += decay.rate * row.weights[d];
    if (decay.kind == RowDecay::Kind::decoupled)
      for (int64_t d = 0; d < row.dim; ++d) row.weights[d] *= keep;
    optimizer.apply(row, gradient);
  }
  pending.clear();
}

void RowTable::update(int threads, float gradient_scale) {
  int64_t slots = 0;
  for (const auto& part : parts_) slots += part->pending.end() - part->pending.begin();
  threads = threads_worth(threads, slots);
  std::visit(
      [&](const auto& optimizer) {
        run_jobs(threads, options_.parts,
                 [&](int64_t part, int) { update_part(*parts_[part], optimizer, gradient_scale); });
      },
      options_.optimizer);
}

void RowTable::drop_pending() {
  for (const auto& part : parts_) part->pending.clear();
}

void RowTable::write_first_weights(int64_t key, float* weights) const {
  if (options_.first.kind == FirstWeights::Kind::zeros) return;
  const float range =
      options_.first.range > 0 ? options_.first.range : 1 / std::sqrt(static_cast<float>(dim()));
  const auto bits = static_cast<uint64_t>(key);
  std::array<uint32_t, 4> block{};
  for (int64_t d = 0; d < dim(); ++d) {
    if (d % 4 == 0)
      block = philox({static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32),
                      static_cast<uint32_t>(d / 4), 0},
                     random_);
    const float unit = static_cast<float>(block[d % 4] >> 8) * 0x1p-24f;  // [0, 1)
    weights[d] = (2 * unit - 1) * range;
  }
}

// A row for an absent key, all zeros, that find() finds. The caller sets its version.
uint32_t RowTable::make_row(Part& part, int64_t key, uint64_t hash) {
  uint32_t row;
  if (!part.free_rows.empty()) {
    row = part.free_rows.back();
    part.free_rows.pop_back();
  } else {
    if (part.rows_left_in_chunk == 0) {
      part.next_row = store_->take_chunk();
      part.rows_left_in_chunk = RowStore::kChunkRows;
      part.chunks.push_back(part.next_row);
    }
    row = part.next_row++;
    --part.rows_left_in_chunk;
  }
  store_->header(row) = RowHeader{};
  store_->header(row).key = key;
  std::fill_n(store_->floats(row), dim() * (1 + moments_), 0.0f);
  part.index.insert(hash, row);
  if (!part.tombstones.empty()) part.tombstones.erase(key);
  return row;
}

uint32_t RowTable::insert(Part& part, int64_t key, uint64_t hash) {
  const uint32_t row = make_row(part, key, hash);
  write_first_weights(key, store_->floats(row));
  std::visit([&](const auto& optimizer) { optimizer.begin(state(row)); }, options_.optimizer);
  store_->header(row).version = version_;
  ++part.inserted;
  return row;
}

bool RowTable::erase_row(Part& part, int64_t key, uint64_t hash) {
  const uint32_t row = part.index.erase(key, hash);
  if (row == kNoRow) return false;
  store_->header(row).version = 0;
  part.free_rows.push_back(row);
  return true;
}

int64_t RowTable::erase(std::span<const int64_t> keys) {
  TRIREME_ASSERT(!pending(), "table '", options_.name, "': erase() between push() and update()");
  int64_t erased = 0;
  for (const int64_t key : keys) {
    Part& part = part_of(hash_of(key));
    if (!erase_row(part, key, hash_of(key))) continue;
    part.tombstones[key] = version_;
    ++part.erased;
    ++erased;
  }
  structure_ += erased > 0;
  return erased;
}

}  // namespace trireme
