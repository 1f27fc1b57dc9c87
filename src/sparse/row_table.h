// A table of rows, keyed by any 64-bit id, that grows as training meets new keys.
//
//   RowLookup lookup;
//   table.pull(ids, {.threads = 2}, rows, lookup);   // [n, D]: rows of the batch, new keys
//   inserted table.push(lookup, gradients, 2);                // [n, D]: added to what waits for
//   the update table.update(2);                                 // one optimizer step for each key
//   that was pushed
//
// Numbers
//   A new row's weights are a function of (seed, name, key, element), so they do not depend on when
//   and where it is made. The gradients of a key are added in the order of positions, push after
//   push, and applied by one update. All rows have the same bits for any number of threads and
//   parts.
// Versions
//   version() is the commit that changes belong to now. A row carries that of its last change:
//   insertion, pull for training (count and time change) and update. Erasing leaves a tombstone
//   (key, version) until it is forgotten or the key comes back. RowBatch rows of versions above v,
//   applied to the state at v, give this state.
// Threads
//   peek(), find() and other const members: any number at a time. Members that are not const: one
//   caller at a time and no reader beside it; they use at most as many threads as they are told.
// Cost
//   Of a pull: one pass over the ids, and two cache misses a distinct key, several in flight.
//   Growing moves a few thousand index entries at a time, never the table. Memory: record_bytes a
//   row, under 16 bytes of index a key.
// Errors
//   InputError for options and batches of rows that do not fit the table; RunError when memory is
//   used up. After either, what was in the table before a pull is unchanged, some new keys may have
//   been inserted.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sparse/mix.h"
#include "sparse/optimizer.h"
#include "sparse/row_batch.h"
#include "sparse/row_lookup.h"
#include "sparse/row_store.h"

namespace trireme {

struct FirstWeights {
  enum class Kind { uniform, zeros };
  Kind kind = Kind::uniform;
  float range = 0;  // uniform in [-range, range); 0: 1 / sqrt(D)
};

// Shrinks the rows that an update touches, by rate; the others keep their weights.
struct RowDecay {
  enum class Kind {
    none,
    l2,         // g += rate w, before the moments see it
    decoupled,  // w *= 1 - lr rate, before the step; the optimizer must have an lr
  };
  Kind kind = Kind::none;
  float rate = 0;
};

struct RowTableOptions {
  std::string name;  // sets apart the first weights of tables that share a seed
  int64_t dim = 1;   // D
  uint64_t seed = 0;
  RowOptimizer optimizer = SgdRows{};
  FirstWeights first;
  RowDecay decay;
  std::vector<float> default_row;  // [D], what peek() says of an absent key; empty: zeros
  // Pieces that threads can work on side by side, a power of two up to 256. 1 saves a pass over the
  // ids: for many tables, each with a thread to itself.
  int parts = 16;
  int64_t ids_per_thread =
      2048;  // a call starts no thread for fewer than these: starting costs about as much
};

struct PullOptions {
  int64_t event_time = 0;  // of the newest event of the batch, in any unit; rows keep the greatest
  int threads = 1;
};

// One row as a reader sees it. The spans live until the table changes.
struct RowView {
  int64_t key, touched;
  uint32_t count, updates;
  RowVersion version;
  float row_moment;
  std::span<const float> weights;  // [D]
  std::span<const float> moments;  // [M, D]
};

struct RowTableStats {
  int64_t rows = 0, tombstones = 0;
  int64_t inserted = 0, erased = 0;             // since the table was made; loading does not count
  int64_t record_bytes = 0;                     // of one row: key, weights, moments and the rest
  int64_t reserved_bytes = 0, index_bytes = 0;  // of memory taken, touched or not
  double weight_norm = 0;                       // L2, over all rows
  double largest_weight = 0;                    // in absolute value
};

class RowTable {
 public:
  explicit RowTable(RowTableOptions options);
  ~RowTable();
  RowTable(RowTable&&) noexcept;
  RowTable& operator=(RowTable&&) noexcept;

  const RowTableOptions& options() const { return options_; }
  int64_t dim() const { return options_.dim; }
  int64_t rows() const;

  // Training: inserts unknown keys, adds the ids to the counts of their rows, and copies each id's
  // weights to `rows`, [n, D]. `lookup` is then ready for push().
  void pull(std::span<const int64_t> ids, const PullOptions& pull, std::span<float> rows,
            RowLookup& lookup);
  // The same for evaluation and serving: changes nothing, and an unknown key reads the default row.
  void peek(std::span<const int64_t> ids, int threads, std::span<float> rows,
            RowLookup& lookup) const;

  // Adds a gradient, [n, D], for each position of a pull. Any number of pulls and pushes may come
  // before an update; no key may be erased in between.
  void push(const RowLookup& lookup, std::span<const float> gradients, int threads);
  // Of what was pushed, each row once: the sum of squares over all elements. For clipping, and not
  // finite if a gradient is not. The same bits for any number of threads. Cost: one pass over the
  // sums.
  double pending_squared_norm() const;
  bool pending() const;
  // One optimizer step for each pushed row, with its gradient times `gradient_scale`.
  void update(int threads, float gradient_scale = 1);
  void drop_pending();  // what was pushed is not applied

  // The commit that changes from now on belong to. REQUIRES: version >= version().
  void set_version(RowVersion version);
  RowVersion version() const { return version_; }

  // Between steps. Erases the keys that exist and leaves tombstones; how many they were.
  int64_t erase(std::span<const int64_t> keys);
  // Forgets tombstones of versions up to `through`: everybody who reads deltas has passed them.
  void forget_tombstones(RowVersion through);

  std::optional<RowView> find(int64_t key) const;
  // Calls visit(RowView) for each row, in no order that means anything.
  template <class Visit>
  void for_each_row(Visit&& visit) const;

  // The rows of versions above `after`, by key, in pieces that fit in memory: keys first (8 bytes a
  // row, and one pass over the headers), then rows of any range of them.
  std::vector<int64_t> keys_changed_since(RowVersion after) const;
  RowBatch rows_of(std::span<const int64_t> keys) const;  // REQUIRES: they exist
  // All of it at once, tombstones included: everything for after = 0, else a delta.
  RowBatch changed_since(RowVersion after) const;
  // Takes rows and tombstones that are newer than what is here for their keys; nothing else, so
  // that applying twice changes nothing. Raises version() to the newest of them.
  void apply(const RowBatch& batch);

  RowTableStats stats() const;  // one pass over all rows

 private:
  struct Part;

  std::vector<uint32_t> chunks() const;  // first rows of the chunks in use, part by part
  RowView view(uint32_t row) const;
  RowState state(uint32_t row);
  uint64_t hash_of(int64_t key) const { return mix64(static_cast<uint64_t>(key) ^ salt_); }
  Part& part_of(uint64_t hash) const;
  int threads_worth(int threads, int64_t ids) const;
  template <class Found>
  void resolve(std::span<const int64_t> ids, int threads, std::span<float> rows, RowLookup& lookup,
               Found&& found) const;
  void copy_rows(const RowLookup& lookup, int threads, std::span<float> rows) const;
  void write_first_weights(int64_t key, float* weights) const;
  uint32_t make_row(Part& part, int64_t key, uint64_t hash);
  uint32_t insert(Part& part, int64_t key, uint64_t hash);
  bool erase_row(Part& part, int64_t key, uint64_t hash);
  template <class Optimizer>
  void update_part(Part& part, const Optimizer& optimizer, float gradient_scale);
  void apply_row(const RowBatch& batch, int64_t number);

  RowTableOptions options_;
  int moments_;
  int part_bits_;
  uint64_t salt_;                   // of the index
  std::array<uint32_t, 2> random_;  // key of the generator of first weights
  std::unique_ptr<RowStore> store_;
  std::vector<std::unique_ptr<Part>> parts_;
  RowVersion version_ = 1;
  uint64_t structure_ =
      0;  // grows when row numbers may change hands: lookups from before are refused
};

template <class Visit>
void RowTable::for_each_row(Visit&& visit) const {
  for (const uint32_t first : chunks())
    for (uint32_t row = first; row < first + RowStore::kChunkRows; ++row)
      if (store_->header(row).version != 0) visit(view(row));
}

}  // namespace trireme
