#include "sparse/row_index.h"

#include <algorithm>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "base/error.h"
#include "sparse/mix.h"

namespace trireme {
namespace {

// Bits of the hash that parts and directory may use together: 2^32 keys need about 21, and a
// directory of 2^24 entries takes 64 MiB.
constexpr uint32_t kMostDepth = 24;
constexpr int kSplitPages = 5;  // of each half of a full segment: both are then about 0.7 full

}  // namespace

uint32_t tag_matches_plain(const IndexBucket& bucket, uint8_t tag) {
  uint32_t matches = 0;
  for (int slot = 0; slot < IndexBucket::kSlots; ++slot)
    matches |= uint32_t{bucket.tags[slot] == tag} << slot;
  return matches;
}

uint32_t tag_matches(const IndexBucket& bucket, uint8_t tag) {
#if defined(__SSE2__)
  const auto tags = _mm_load_si128(reinterpret_cast<const __m128i*>(&bucket));
  const auto equal = _mm_cmpeq_epi8(tags, _mm_set1_epi8(static_cast<char>(tag)));
  return static_cast<uint32_t>(_mm_movemask_epi8(equal)) & ((1u << IndexBucket::kSlots) - 1);
#else
  return tag_matches_plain(bucket, tag);
#endif
}

RowIndex::RowIndex(const RowStore& store, uint64_t salt, int part_bits, uint64_t part)
    : store_(store), salt_(salt), part_bits_(part_bits) {
  directory_.push_back(0);
  segments_.push_back(make_segment(1, 0, part_bits == 0 ? 0 : part << (64 - part_bits)));
}

uint32_t RowIndex::find(int64_t key, uint64_t hash) const {
  const Segment& segment = segments_[segment_of(hash)];
  uint32_t at = home_of(segment, hash);
  // Marks stay when keys go, so in the worst case every bucket is marked: count them.
  for (uint32_t probed = 0; probed < segment.buckets; ++probed) {
    const IndexBucket& bucket = bucket_of(segment, at);
    for (uint32_t m = tag_matches(bucket, tag_of(hash)); m != 0; m &= m - 1) {
      const uint32_t row = bucket.rows[std::countr_zero(m)];
      if (store_.header(row).key == key) return row;
    }
    if (!bucket.overflowed) return kNoRow;
    if (++at == segment.buckets) at = 0;
  }
  return kNoRow;
}

// Three stages, a block of keys apart: fetch the bucket; match the tag and fetch the record;
// compare the key. Only the few keys whose first match is not theirs take the plain way.
void RowIndex::find_all(std::span<const int64_t> keys, std::span<const uint64_t> hashes,
                        std::span<uint32_t> rows) const {
  constexpr size_t kBlock = 32;
  std::array<const IndexBucket*, 2 * kBlock> buckets;
  const size_t blocks = (keys.size() + kBlock - 1) / kBlock;
  const auto for_block = [&](size_t block, auto&& stage) {
    const size_t end = std::min(keys.size(), (block + 1) * kBlock);
    for (size_t i = block * kBlock; i < end; ++i) stage(i);
  };
  for (size_t block = 0; block < blocks + 2; ++block) {
    if (block < blocks)
      for_block(block, [&](size_t i) {
        const Segment& segment = segments_[segment_of(hashes[i])];
        buckets[i % buckets.size()] = &bucket_of(segment, home_of(segment, hashes[i]));
        __builtin_prefetch(buckets[i % buckets.size()]);
      });
    if (block >= 1 && block - 1 < blocks)
      for_block(block - 1, [&](size_t i) {
        const IndexBucket& bucket = *buckets[i % buckets.size()];
        const uint32_t m = tag_matches(bucket, tag_of(hashes[i]));
        rows[i] = m == 0 ? kNoRow : bucket.rows[std::countr_zero(m)];
        if (m != 0) store_.prefetch(rows[i]);
      });
    if (block >= 2)
      for_block(block - 2, [&](size_t i) {
        if (rows[i] == kNoRow || store_.header(rows[i]).key != keys[i])
          rows[i] = find(keys[i], hashes[i]);
      });
  }
}

void RowIndex::insert(uint64_t hash, uint32_t row) {
  const Segment* segment = &segments_[segment_of(hash)];
  while (segment->used >= segment->limit ||
         segment->erased > segment->buckets * IndexBucket::kSlots / 2) {
    make_room(hash);
    segment = &segments_[segment_of(hash)];
  }
  place(segments_[segment_of(hash)], hash, row);
  ++size_;
}

uint32_t RowIndex::erase(int64_t key, uint64_t hash) {
  Segment& segment = segments_[segment_of(hash)];
  uint32_t at = home_of(segment, hash);
  for (uint32_t probed = 0; probed < segment.buckets; ++probed) {
    IndexBucket& bucket = bucket_of(segment, at);
    for (uint32_t m = tag_matches(bucket, tag_of(hash)); m != 0; m &= m - 1) {
      const int slot = std::countr_zero(m);
      const uint32_t row = bucket.rows[slot];
      if (store_.header(row).key != key) continue;
      bucket.tags[slot] = 0;
      --segment.used;
      ++segment.erased;
      --size_;
      return row;
    }
    if (!bucket.overflowed) return kNoRow;
    if (++at == segment.buckets) at = 0;
  }
  return kNoRow;
}

void RowIndex::place(Segment& segment, uint64_t hash, uint32_t row) {
  uint32_t at = home_of(segment, hash);
  for (;;) {
    IndexBucket& bucket = bucket_of(segment, at);
    if (const uint32_t empty = tag_matches(bucket, 0); empty != 0) {
      const int slot = std::countr_zero(empty);
      bucket.tags[slot] = tag_of(hash);
      bucket.rows[slot] = row;
      ++segment.used;
      return;
    }
    bucket.overflowed = 1;
    if (++at == segment.buckets) at = 0;
  }
}

RowIndex::Segment RowIndex::make_segment(int pages, uint32_t depth, uint64_t hash) {
  Segment segment{};
  segment.buckets = static_cast<uint32_t>(pages * kPageBuckets);
  segment.depth = depth;
  // Load .74 to .90, by the segment's place in the hash: the segments of a table then grow at
  // different times.
  const uint32_t bits = static_cast<uint32_t>(part_bits_) + depth;
  const uint64_t place = bits == 0 ? 1 : hash >> (64 - bits) | uint64_t{1} << bits;
  const double share = static_cast<double>(mix64(place ^ salt_) >> 11) * 0x1p-53;
  segment.limit =
      static_cast<uint32_t>(segment.buckets * IndexBucket::kSlots * 0.90 * (1 - 0.18 * share));
  for (int page = 0; page < pages; ++page) segment.pages[page] = take_page();
  return segment;
}

// Rebuilds the segment of this hash: as large as before when half its slots have been emptied since
// it was built, else larger. Rebuilding is what takes the marks of overflow away again.
void RowIndex::make_room(uint64_t hash) {
  const uint32_t number = segment_of(hash);
  const Segment old = segments_[number];
  std::vector<uint32_t> rows;
  rows.reserve(old.used);
  for (uint32_t b = 0; b < old.buckets; ++b) {
    const IndexBucket& bucket = bucket_of(old, b);
    for (int slot = 0; slot < IndexBucket::kSlots; ++slot)
      if (bucket.tags[slot] != 0) rows.push_back(bucket.rows[slot]);
  }
  constexpr size_t kAhead = 24;
  std::vector<uint64_t> hashes(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i + kAhead < rows.size()) __builtin_prefetch(&store_.header(rows[i + kAhead]));
    hashes[i] = mix64(static_cast<uint64_t>(store_.header(rows[i]).key) ^ salt_);
  }
  const int pages = static_cast<int>(old.buckets) / kPageBuckets;
  if (old.used >= old.limit && pages == kMaxPages) {
    split(number, rows, hashes);
  } else {
    const bool grow = old.used >= old.limit;
    Segment& segment = segments_[number];
    segment = make_segment(!grow ? pages : pages < 4 ? 2 * pages : pages + 1, old.depth, hash);
    for (size_t i = 0; i < rows.size(); ++i) place(segment, hashes[i], rows[i]);
  }
  free_pages_.insert(free_pages_.end(), old.pages.begin(), old.pages.begin() + pages);
}

void RowIndex::split(uint32_t number, std::span<const uint32_t> rows,
                     std::span<const uint64_t> hashes) {
  const uint32_t depth = segments_[number].depth;
  const uint64_t decides = uint64_t{1} << (63 - part_bits_ - static_cast<int>(depth));
  const int64_t upper = std::count_if(hashes.begin(), hashes.end(),
                                      [&](uint64_t hash) { return (hash & decides) != 0; });
  // Hashes are a bijection of the keys, so chance does not put more than 63 % of 5,000 on one side.
  const int64_t most = kSplitPages * kPageBuckets * IndexBucket::kSlots * 9 / 10;
  const int64_t larger = std::max(upper, std::ssize(hashes) - upper);
  if (larger > most || depth + static_cast<uint32_t>(part_bits_) >= kMostDepth)
    throw RunError(concat("row table: ", rows.size(), " keys share ", depth,
                          " bits of their hashes, ", larger,
                          " of them one more; they were made to collide, use another seed"));
  if (depth == depth_) {
    std::vector<uint32_t> doubled(2 * directory_.size());
    for (size_t i = 0; i < doubled.size(); ++i) doubled[i] = directory_[i / 2];
    directory_ = std::move(doubled);
    ++depth_;
  }
  const auto other = static_cast<uint32_t>(segments_.size());
  segments_[number] = make_segment(kSplitPages, depth + 1, hashes[0] & ~decides);
  segments_.push_back(make_segment(kSplitPages, depth + 1, hashes[0] | decides));
  const size_t span = size_t{1} << (depth_ - depth);
  const size_t first = depth == 0 ? 0 : (path_of(hashes[0]) >> (64 - depth)) * span;
  for (size_t i = first + span / 2; i < first + span; ++i) directory_[i] = other;
  for (size_t i = 0; i < rows.size(); ++i)
    place(segments_[(hashes[i] & decides) != 0 ? other : number], hashes[i], rows[i]);
}

IndexBucket* RowIndex::take_page() {
  if (free_pages_.empty()) {
    constexpr int64_t kFirst = 4, kMost = 512;  // pages
    const int64_t pages = std::clamp(pages_, kFirst, kMost);
    const size_t page_bytes = sizeof(IndexBucket) * kPageBuckets;
    blocks_.push_back(allocate_rows_memory(pages * page_bytes, true));
    pages_ += pages;
    auto* page = reinterpret_cast<IndexBucket*>(blocks_.back().get());
    for (int64_t i = pages; i-- > 0;) free_pages_.push_back(page + i * kPageBuckets);
  }
  IndexBucket* page = free_pages_.back();
  free_pages_.pop_back();
  std::memset(static_cast<void*>(page), 0, sizeof(IndexBucket) * kPageBuckets);
  return page;
}

int64_t RowIndex::bytes() const {
  return static_cast<int64_t>(pages_ * kPageBuckets * sizeof(IndexBucket) +
                              segments_.capacity() * sizeof(Segment) +
                              directory_.capacity() * sizeof(uint32_t));
}

int64_t RowIndex::used_bytes() const {
  return bytes() - static_cast<int64_t>(free_pages_.size() * kPageBuckets * sizeof(IndexBucket));
}

}  // namespace trireme
