#include "sparse/row_index.h"

#include <gtest/gtest.h>

#include <random>
#include <unordered_map>

#include "base/error.h"
#include "sparse/mix.h"

namespace trireme {
namespace {

// mix64 backwards: a key with any wanted hash.
uint64_t unmix64(uint64_t x) {
  const auto inverse = [](uint64_t odd) {  // Newton's iteration doubles the correct bits
    uint64_t y = odd;
    for (int i = 0; i < 6; ++i) y *= 2 - odd * y;
    return y;
  };
  x ^= x >> 33;
  x *= inverse(0xc4ceb9fe1a85ec53);
  x ^= x >> 33;
  x *= inverse(0xff51afd7ed558ccd);
  return x ^ x >> 33;
}

TEST(Mix64, IsThePublishedFinalizer) {
  static_assert(mix64(0) == 0);
  EXPECT_EQ(mix64(1), 0xB456BCFC34C2CB2C);
  for (const uint64_t x : {uint64_t{1}, uint64_t{77}, ~uint64_t{0}})
    EXPECT_EQ(mix64(unmix64(x)), x);
}

TEST(TagMatches, BothFormsFindEveryTag) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    IndexBucket bucket{};
    for (auto& tag : bucket.tags) tag = random() % 4;
    bucket.overflowed = random() % 4;  // lies behind the tags and must not be taken for one
    for (auto& spare : bucket.spare) spare = random() % 4;
    for (int tag = 0; tag < 4; ++tag) {
      uint32_t expected = 0;
      for (int slot = 0; slot < 12; ++slot)
        if (bucket.tags[slot] == tag) expected |= 1u << slot;
      EXPECT_EQ(tag_matches_plain(bucket, tag), expected);
      EXPECT_EQ(tag_matches(bucket, tag), expected);
    }
  }
}

// A store and an index over all hashes, driven by key.
struct Indexed {
  explicit Indexed(uint64_t salt) : salt(salt), index(store, salt, 0, 0) {}
  uint64_t hash(int64_t key) const { return mix64(static_cast<uint64_t>(key) ^ salt); }
  uint32_t find(int64_t key) const { return index.find(key, hash(key)); }
  uint32_t insert(int64_t key) {
    if (left == 0) {
      store.reserve(1, 1);
      next = store.take_chunk();
      left = RowStore::kChunkRows;
    }
    --left;
    store.header(next).key = key;
    index.insert(hash(key), next);
    return next++;
  }

  uint64_t salt;
  RowStore store{1};
  RowIndex index;
  uint32_t next = 0, left = 0;
};

// Random inserts and erases over a key space small enough that keys come back; enough of them to
// split segments and to rebuild some for their erased slots.
TEST(RowIndex, AgreesWithAMapUnderChurn) {
  for (const uint64_t seed : {1, 2, 3}) {
    std::mt19937_64 random(seed);
    Indexed table(seed * 0x9e3779b97f4a7c15);
    std::unordered_map<int64_t, uint32_t> oracle;
    const auto random_key = [&] { return static_cast<int64_t>(random() % 40'000) - 20'000; };
    for (int step = 0; step < 300'000; ++step) {
      const int64_t key = random_key();
      const bool growing = step / 50'000 % 2 == 0;
      if (random() % 10 < (growing ? 9 : 2)) {
        if (!oracle.contains(key)) oracle[key] = table.insert(key);
      } else if (oracle.erase(key) > 0) {
        ASSERT_NE(table.index.erase(key, table.hash(key)), kNoRow);
      } else {
        ASSERT_EQ(table.index.erase(key, table.hash(key)), kNoRow);
      }
    }
    ASSERT_EQ(table.index.size(), static_cast<int64_t>(oracle.size()));
    std::vector<int64_t> keys;
    std::vector<uint64_t> hashes;
    for (int64_t key = -21'000; key < 21'000; ++key) {
      const auto expected = oracle.find(key);
      ASSERT_EQ(table.find(key), expected == oracle.end() ? kNoRow : expected->second)
          << key << " seed " << seed;
      keys.push_back(key);
      hashes.push_back(table.hash(key));
    }
    for (const size_t count :
         {size_t{0}, size_t{1}, size_t{31}, size_t{32}, size_t{33}, size_t{65}, keys.size()}) {
      std::vector<uint32_t> rows(count);
      table.index.find_all(std::span(keys).first(count), std::span(hashes).first(count), rows);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(rows[i], table.find(keys[i]));
    }
  }
}

// 700 keys whose hashes share all bits but a few in the middle: one bucket is home to all, the tag
// is the same for all, and the whole first segment of 64 buckets fills with their overflow.
TEST(RowIndex, SurvivesKeysThatAllWantOneBucket) {
  Indexed table(42);
  const auto key = [](uint64_t i) {
    return static_cast<int64_t>(unmix64(0xABCDEF0000000077 | i << 8) ^ 42);
  };
  std::vector<uint32_t> rows;
  for (uint64_t i = 0; i < 700; ++i) rows.push_back(table.insert(key(i)));
  for (uint64_t i = 0; i < 700; ++i) ASSERT_EQ(table.find(key(i)), rows[i]);
  for (uint64_t i = 700; i < 1400; ++i) ASSERT_EQ(table.find(key(i)), kNoRow);
  for (uint64_t i = 0; i < 700; i += 2)
    ASSERT_EQ(table.index.erase(key(i), table.hash(key(i))), rows[i]);
  for (uint64_t i = 0; i < 700; ++i) ASSERT_EQ(table.find(key(i)), i % 2 == 0 ? kNoRow : rows[i]);
}

// Every bucket of the first segment keeps its mark of overflow although the keys are gone: a search
// for an absent key must still end.
TEST(RowIndex, EndsASearchWhereEveryBucketIsMarked) {
  Indexed table(42);
  const auto key = [](uint64_t bucket, uint64_t i) {  // home: the top 32 bits times 64
    return static_cast<int64_t>(unmix64(bucket << 58 | i << 8 | 0x77) ^ 42);
  };
  for (uint64_t i = 0; i < 541; ++i) table.insert(key(0, i));  // marks 0 to 44
  for (uint64_t i = 0; i < 384; ++i) table.index.erase(key(0, i), table.hash(key(0, i)));
  for (uint64_t i = 0; i < 228; ++i) table.insert(key(45, i));  // marks 45 to 63
  EXPECT_EQ(table.find(key(3, 1)), kNoRow);
  EXPECT_EQ(table.index.erase(key(3, 1), table.hash(key(3, 1))), kNoRow);
  EXPECT_NE(table.find(key(0, 540)), kNoRow);
  EXPECT_NE(table.find(key(45, 227)), kNoRow);
}

TEST(RowIndex, RefusesKeysThatWereMadeToCollide) {
  Indexed table(42);
  const auto key = [](uint64_t i) {
    return static_cast<int64_t>(unmix64(0xABCDEF0000000000 | i) ^ 42);
  };
  EXPECT_THROW(
      {
        for (uint64_t i = 0; i < 6000; ++i) table.insert(key(i));
      },
      RunError);
}

// 8 of the 16 bytes are the key itself, in the record. Counted are the pages in use: others wait in
// a block of 2 MiB, which is a fifth of all at this size.
TEST(RowIndex, TakesUnder16BytesAKeyWhileItGrows) {
  Indexed table(7);
  for (int64_t key = 1; key <= 600'000; ++key) {
    table.insert(key * 1'000'003);
    if (key >= 200'000 && key % 20'000 == 0) {
      EXPECT_LT(static_cast<double>(table.index.used_bytes()) / static_cast<double>(key), 8)
          << key << " keys";
      EXPECT_LE(table.index.bytes() - table.index.used_bytes(), int64_t{3} << 20);
    }
  }
}

}  // namespace
}  // namespace trireme
