#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/checksum.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/random.h"

namespace trireme {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The known answers that Random123 publishes with the generator (kat_vectors, philox4x32 10).
TEST(Philox, GivesThePublishedAnswers) {
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox({f, f, f, f}, {f, f}), (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, NamesSeedsAndDrawsSetStreamsApart) {
  std::set<uint64_t> seen;
  for (uint64_t seed : {0, 1})
    for (const char* name : {"a", "b"})
      for (uint64_t draw : {0, 1})
        for (uint64_t index = 0; index < 100; ++index)
          seen.insert(RandomStream(seed, name, draw).bits(index));
  EXPECT_EQ(seen.size(), 800u);
}

// 100,000 normals: the mean's standard error is 0.0032, the variance's 0.0045; five of each.
TEST(RandomStream, NormalHasMeanZeroAndVarianceOne) {
  const RandomStream stream(7, "normal");
  double sum = 0, squares = 0;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const double x = stream.normal(i);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.016);
  EXPECT_NEAR(squares / 1e5, 1, 0.0225);
}

TEST(Permutation, VisitsEveryPlaceOnce) {
  for (uint64_t size : {1, 2, 3, 4, 5, 16, 17, 1000, 4097}) {
    std::set<uint64_t> seen;
    const Permutation permutation(size, 3, "order", size);
    for (uint64_t place = 0; place < size; ++place) seen.insert(permutation(place));
    EXPECT_EQ(seen.size(), size);
    EXPECT_EQ(*seen.rbegin(), size - 1);
  }
}

TEST(Permutation, DrawsDiffer) {
  const Permutation a(1000, 3, "order", 0), b(1000, 3, "order", 1);
  int same = 0;
  for (uint64_t place = 0; place < 1000; ++place) same += a(place) == b(place);
  EXPECT_LT(same, 10);  // expected 1; Poisson puts ten or more at 1e-7
}

TEST(Checksum, IsCrc32C) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(bytes_of("56789"), crc32c(bytes_of("1234"))), 0xE3069283u);
}

TEST(Files, AtomicFileAppearsWholeOrNotAtAll) {
  const fs::path directory = fs::temp_directory_path() / concat("trireme-files-", ::getpid());
  make_directories(directory);
  {
    AtomicFile file(directory / "a");
    file.write("half");
  }
  EXPECT_TRUE(fs::is_empty(directory));
  write_file(directory / "a", "first");
  write_file(directory / "a", "second");
  EXPECT_EQ(read_file(directory / "a"), "second");
  EXPECT_EQ(MappedFile(directory / "a").text(), "second");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 1);
  fs::remove_all(directory);
}

TEST(Files, ALockHasOneHolder) {
  const fs::path path = fs::temp_directory_path() / concat("trireme-lock-", ::getpid());
  {
    const auto lock = FileLock::try_lock(path);
    ASSERT_TRUE(lock);
    EXPECT_FALSE(FileLock::try_lock(path));
  }
  EXPECT_TRUE(FileLock::try_lock(path));
  fs::remove(path);
}

TEST(Files, AMissingFileIsTheUsersMatter) {
  EXPECT_THROW(read_file("/nowhere/at/all"), InputError);
}

TEST(Format, CountsBytesAndDurations) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1234), "1.23 kB");
  EXPECT_EQ(format_bytes(999'999), "1.00 MB");
  EXPECT_EQ(format_duration(std::chrono::milliseconds(12)), "12 ms");
  EXPECT_EQ(format_duration(std::chrono::seconds(3723)), "1 h 02 min");
}

}  // namespace
}  // namespace trireme
