#include "kernel/allocator.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "base/error.h"

namespace trireme::kernel {
namespace {

TEST(Allocator, CountsWhatIsAskedForByRankAndProcess) {
  CountingAllocator allocator({.cache_bytes = 1 << 20});
  {
    const MemoryScope scope(3);
    const c10::DataPtr a = allocator.allocate(1000);
    {
      const MemoryScope inner(4);
      const c10::DataPtr b = allocator.allocate(500);
      EXPECT_EQ(allocator.rank(4).live_bytes, 500);
      EXPECT_EQ(allocator.process().live_bytes, 1500);
    }
    EXPECT_EQ(allocator.rank(3).live_bytes, 1000);
    EXPECT_EQ(allocator.rank(4).live_bytes, 0);
    EXPECT_EQ(allocator.rank(4).peak_bytes, 500);
  }
  EXPECT_EQ(allocator.process().live_bytes, 0);
  EXPECT_EQ(allocator.process().peak_bytes, 1500);
  allocator.reset_peaks();
  EXPECT_EQ(allocator.process().peak_bytes, 0);
}

TEST(Allocator, BlocksAreAlignedReusedAndBounded) {
  CountingAllocator allocator({.cache_bytes = 10'000});
  void* first = nullptr;
  {
    const c10::DataPtr a = allocator.allocate(3000);
    first = a.get();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
  }
  EXPECT_GE(allocator.cached_bytes(), 3000);
  {
    const c10::DataPtr again = allocator.allocate(2990);
    EXPECT_EQ(again.get(), first);
  }
  for (size_t bytes : {4000, 5000, 6000, 9000, 20'000}) {
    {
      const c10::DataPtr block = allocator.allocate(bytes);
    }
    EXPECT_LE(allocator.cached_bytes(), 10'000);
  }
  allocator.release_cache();
  EXPECT_EQ(allocator.cached_bytes(), 0);
  EXPECT_EQ(allocator.allocate(0).get(), nullptr);
}

// Blocks made on one thread and freed on another, many at once: the counts end where they began.
TEST(Allocator, ServesManyThreads) {
  CountingAllocator allocator({.cache_bytes = 1 << 16});
  std::vector<std::thread> threads;
  std::vector<std::vector<c10::DataPtr>> kept(4);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      const MemoryScope scope(t);
      for (size_t i = 1; i <= 2000; ++i) {
        kept[static_cast<size_t>(t)].push_back(allocator.allocate(i * 7 % 5000 + 1));
        if (i % 3 == 0) kept[static_cast<size_t>(t)].erase(kept[static_cast<size_t>(t)].begin());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(allocator.process().live_bytes, 0);
  kept.clear();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(allocator.rank(rank).live_bytes, 0);
  EXPECT_EQ(allocator.process().live_bytes, 0);
  EXPECT_LE(allocator.cached_bytes(), 1 << 16);
}

TEST(Allocator, NoMemoryIsAnErrorWithBothFigures) {
  CountingAllocator allocator({.cache_bytes = 0});
  EXPECT_THROW(allocator.allocate(size_t{1} << 60), RunError);
}

}  // namespace
}  // namespace trireme::kernel
