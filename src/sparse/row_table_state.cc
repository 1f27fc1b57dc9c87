// What a row table tells about itself, and its way to and from checkpoints.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "sparse/row_table.h"
#include "sparse/row_table_part.h"

namespace trireme {

void RowTable::set_version(RowVersion version) {
  TRIREME_ASSERT(version >= version_, "table '", options_.name, "': version ", version, " after ",
                 version_);
  version_ = version;
}

void RowTable::forget_tombstones(RowVersion through) {
  for (const auto& part : parts_)
    std::erase_if(part->tombstones,
                  [&](const auto& tombstone) { return tombstone.second <= through; });
}

std::vector<uint32_t> RowTable::chunks() const {
  std::vector<uint32_t> chunks;
  for (const auto& part : parts_)
    chunks.insert(chunks.end(), part->chunks.begin(), part->chunks.end());
  return chunks;
}

RowView RowTable::view(uint32_t row) const {
  const RowHeader& header = store_->header(row);
  const float* floats = store_->floats(row);
  const auto width = static_cast<size_t>(dim());
  return {.key = header.key,
          .touched = header.touched,
          .count = header.count,
          .updates = header.updates,
          .version = header.version,
          .row_moment = header.row_moment,
          .weights = {floats, width},
          .moments = {floats + width, width * moments_}};
}

std::optional<RowView> RowTable::find(int64_t key) const {
  const uint64_t hash = hash_of(key);
  const uint32_t row = part_of(hash).index.find(key, hash);
  if (row == kNoRow) return std::nullopt;
  return view(row);
}

std::vector<int64_t> RowTable::keys_changed_since(RowVersion after) const {
  std::vector<int64_t> keys;
  for (const uint32_t first : chunks())
    for (uint32_t row = first; row < first + RowStore::kChunkRows; ++row)
      if (const RowHeader& header = store_->header(row); header.version > after)
        keys.push_back(header.key);
  std::sort(keys.begin(), keys.end());
  return keys;
}

RowBatch RowTable::rows_of(std::span<const int64_t> keys) const {
  RowBatch batch;
  batch.optimizer = kind_of(options_.optimizer);
  batch.dim = dim();
  batch.moments = moments_;
  batch.resize(static_cast<int64_t>(keys.size()), 0);
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto row = find(keys[i]);
    TRIREME_ASSERT(row.has_value(), "table '", options_.name, "': no row of key ", keys[i]);
    batch.key[i] = row->key;
    std::copy(row->weights.begin(), row->weights.end(),
              batch.weight.begin() + i * row->weights.size());
    std::copy(row->moments.begin(), row->moments.end(),
              batch.moment.begin() + i * row->moments.size());
    batch.row_moment[i] = row->row_moment;
    batch.count[i] = row->count;
    batch.updates[i] = row->updates;
    batch.touched[i] = row->touched;
    batch.version[i] = row->version;
  }
  return batch;
}

RowBatch RowTable::changed_since(RowVersion after) const {
  RowBatch batch = rows_of(keys_changed_since(after));
  std::vector<std::pair<int64_t, int64_t>> tombstones;
  for (const auto& part : parts_)
    for (const auto& [key, version] : part->tombstones)
      if (version > after) tombstones.emplace_back(key, version);
  std::sort(tombstones.begin(), tombstones.end());
  for (const auto& [key, version] : tombstones) {
    batch.erased_key.push_back(key);
    batch.erased_version.push_back(version);
  }
  return batch;
}

void RowTable::apply(const RowBatch& batch) {
  const std::string who = concat("table '", options_.name, "': loading rows");
  TRIREME_ASSERT(!pending(), who, " between push() and update()");
  TRIREME_CHECK(batch.optimizer == kind_of(options_.optimizer), who, " of optimizer ",
                batch.optimizer, " into a table of ", kind_of(options_.optimizer),
                "; their moments do not go together");
  TRIREME_CHECK(batch.dim == dim() && batch.moments == moments_, who, " of dim ", batch.dim,
                " and ", batch.moments, " moments into a table of dim ", dim(), " and ", moments_);
  batch.check(who);
  store_->reserve(batch.rows(), options_.parts);
  ++structure_;
  for (int64_t number = 0; number < batch.rows(); ++number) apply_row(batch, number);
  for (size_t i = 0; i < batch.erased_key.size(); ++i) {
    const int64_t key = batch.erased_key[i];
    const auto version = static_cast<RowVersion>(batch.erased_version[i]);
    Part& part = part_of(hash_of(key));
    const auto row = find(key);
    if (row && row->version >= version) continue;
    erase_row(part, key, hash_of(key));
    RowVersion& tombstone = part.tombstones[key];
    tombstone = std::max(tombstone, version);
    version_ = std::max(version_, version);
  }
}

void RowTable::apply_row(const RowBatch& batch, int64_t number) {
  const int64_t key = batch.key[number];
  const uint64_t hash = hash_of(key);
  const auto version = static_cast<RowVersion>(batch.version[number]);
  Part& part = part_of(hash);
  const auto tombstone = part.tombstones.find(key);
  if (tombstone != part.tombstones.end() && tombstone->second >= version) return;
  uint32_t row = part.index.find(key, hash);
  if (row != kNoRow && store_->header(row).version >= version) return;
  if (row == kNoRow) row = make_row(part, key, hash);
  store_->header(row) = {.key = key,
                         .touched = batch.touched[number],
                         .count = static_cast<uint32_t>(batch.count[number]),
                         .updates = static_cast<uint32_t>(batch.updates[number]),
                         .version = version,
                         .row_moment = batch.row_moment[number]};
  float* floats = store_->floats(row);
  std::copy_n(batch.weight.begin() + number * dim(), dim(), floats);
  std::copy_n(batch.moment.begin() + number * dim() * moments_, dim() * moments_, floats + dim());
  version_ = std::max(version_, version);
}

RowTableStats RowTable::stats() const {
  RowTableStats stats;
  stats.record_bytes = store_->record_bytes();
  stats.reserved_bytes = store_->reserved_bytes();
  for (const auto& part : parts_) {
    stats.rows += part->index.size();
    stats.tombstones += static_cast<int64_t>(part->tombstones.size());
    stats.inserted += part->inserted;
    stats.erased += part->erased;
    stats.index_bytes += part->index.bytes();
  }
  double squares = 0;
  for_each_row([&](const RowView& row) {
    for (const float w : row.weights) {
      squares += static_cast<double>(w) * w;
      stats.largest_weight = std::max<double>(stats.largest_weight, std::abs(w));
    }
  });
  stats.weight_norm = std::sqrt(squares);
  return stats;
}

}  // namespace trireme
