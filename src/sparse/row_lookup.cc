#include "sparse/row_lookup.h"

#include <algorithm>

#include "base/error.h"
#include "sparse/mix.h"
#include "sparse/workers.h"

namespace trireme {

int64_t RowLookup::unique_keys() const {
  int64_t sum = 0;
  for (const Part& part : parts_) sum += part.uniques;
  return sum;
}

void RowLookup::partition(std::span<const int64_t> ids, uint64_t salt, int part_bits, int threads) {
  TRIREME_CHECK(ids.size() < kNoRow, "row table: ", ids.size(),
                " ids in one pull; at most 2^32 - 2 are possible");
  const size_t parts = size_t{1} << part_bits, n = ids.size();
  ids_ = ids;
  parts_.assign(parts, Part{});
  unique_at_.resize(n);
  rows_.resize(n);
  parts_[0].end = static_cast<uint32_t>(n);
  if (part_bits == 0) return;
  positions_.resize(n);

  const auto part_of = [&](int64_t id) {
    return mix64(static_cast<uint64_t>(id) ^ salt) >> (64 - part_bits);
  };
  const int64_t stretches = threads;
  const auto for_stretch = [&](int64_t stretch, auto&& visit) {
    const size_t end = n * (stretch + 1) / stretches;
    for (size_t i = n * stretch / stretches; i < end; ++i) visit(i);
  };
  histogram_.assign(stretches * parts, 0);
  run_jobs(threads, stretches, [&](int64_t stretch, int) {
    uint32_t* counts = &histogram_[stretch * parts];
    for_stretch(stretch, [&](size_t i) { ++counts[part_of(ids[i])]; });
  });
  uint32_t place = 0;  // stretch after stretch within a part: positions stay in rising order
  for (size_t part = 0; part < parts; ++part) {
    parts_[part].begin = place;
    for (int64_t stretch = 0; stretch < stretches; ++stretch) {
      const uint32_t count = histogram_[stretch * parts + part];
      histogram_[stretch * parts + part] = place;
      place += count;
    }
    parts_[part].end = place;
  }
  run_jobs(threads, stretches, [&](int64_t stretch, int) {
    uint32_t* places = &histogram_[stretch * parts];
    for_stretch(stretch, [&](size_t i) {
      positions_[places[part_of(ids[i])]++] = static_cast<uint32_t>(i);
    });
  });
}

const KeyNumbers& RowLookup::number_keys(int64_t part_number, uint64_t salt, Scratch& scratch) {
  Part& part = parts_[part_number];
  KeyNumbers& numbers = scratch.numbers;
  numbers.reset(part.end - part.begin);
  scratch.counts.assign(part.end - part.begin, 0);
  for (uint32_t place = part.begin; place < part.end; ++place) {
    const uint32_t i = position(place);
    const uint32_t number =
        numbers.number_of(ids_[i], mix64(static_cast<uint64_t>(ids_[i]) ^ salt));
    unique_at_[i] = part.begin + number;
    ++scratch.counts[number];
  }
  part.uniques = numbers.size();
  return numbers;
}

}  // namespace trireme
