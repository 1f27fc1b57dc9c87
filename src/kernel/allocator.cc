#include "kernel/allocator.h"

#include <malloc.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <vector>

#include "base/error.h"

namespace trireme::kernel {
namespace {

constexpr int kNoRank = -1;
thread_local int current_rank = kNoRank;

constexpr size_t kAlignment = 64;

// Blocks come in sizes with at most an eighth of waste, so that one freed for a tensor serves the
// next that is about as large.
size_t rounded(size_t nbytes) {
  size_t step = kAlignment;
  while (step * 16 < nbytes) step *= 2;
  return (nbytes + step - 1) / step * step;
}

// A count with the most that it ever was.
struct Count {
  std::atomic<int64_t> live{0}, peak{0};

  void add(int64_t bytes) {
    const int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    int64_t most = peak.load(std::memory_order_relaxed);
    while (now > most && !peak.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
    }
  }
  void subtract(int64_t bytes) { live.fetch_sub(bytes, std::memory_order_relaxed); }
  MemoryCount read() const {
    return {live.load(std::memory_order_relaxed), peak.load(std::memory_order_relaxed)};
  }
  void reset() { peak.store(live.load(std::memory_order_relaxed), std::memory_order_relaxed); }
};

}  // namespace

MemoryScope::MemoryScope(int rank) : before_(current_rank) {
  TRIREME_ASSERT(rank >= 0 && rank < CountingAllocator::kRanks, "rank ", rank);
  current_rank = rank;
}

MemoryScope::~MemoryScope() { current_rank = before_; }

struct CountingAllocator::State {
  struct Block {
    void* data;
    size_t bytes;  // asked for
    size_t held;   // rounded
    int rank;
    State* state;
  };
  struct Freed {
    void* data;
    size_t held;
  };
  using Queue = std::list<Freed>;

  int64_t cache_limit;
  Count process;
  std::array<Count, kRanks> ranks;

  std::mutex mutex;  // guards what follows
  Queue by_age;      // freed blocks, the longest unused first
  std::map<size_t, std::vector<Queue::iterator>>
      by_size;  // of each size, the last freed at the back
  int64_t cached = 0;

  void* take(size_t held) {
    const std::lock_guard lock(mutex);
    const auto found = by_size.find(held);
    if (found == by_size.end() || found->second.empty()) return nullptr;
    const Queue::iterator freed = found->second.back();
    found->second.pop_back();
    void* data = freed->data;
    cached -= static_cast<int64_t>(held);
    by_age.erase(freed);
    return data;
  }

  // Keeps the block, and gives the oldest back to the system until the limit holds.
  void keep(void* data, size_t held) {
    std::vector<void*> over;
    {
      const std::lock_guard lock(mutex);
      by_age.push_back({data, held});
      by_size[held].push_back(std::prev(by_age.end()));
      cached += static_cast<int64_t>(held);
      while (cached > cache_limit) over.push_back(drop_oldest());
    }
    for (void* block : over) std::free(block);
  }

  void* drop_oldest() {
    const Queue::iterator oldest = by_age.begin();
    auto& same = by_size.at(oldest->held);
    same.erase(std::ranges::find(same, oldest));
    void* data = oldest->data;
    cached -= static_cast<int64_t>(oldest->held);
    by_age.erase(oldest);
    return data;
  }

  static void give_back(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    State& state = *block->state;
    state.process.subtract(static_cast<int64_t>(block->bytes));
    if (block->rank != kNoRank)
      state.ranks[static_cast<size_t>(block->rank)].subtract(static_cast<int64_t>(block->bytes));
    state.keep(block->data, block->held);
  }
};

CountingAllocator::CountingAllocator(AllocatorOptions options) : state_(std::make_unique<State>()) {
  state_->cache_limit = options.cache_bytes;
}

CountingAllocator::~CountingAllocator() {
  release_cache();
  if (process().live_bytes != 0) std::abort();  // their deleters would read freed memory
}

c10::DataPtr CountingAllocator::allocate(size_t nbytes) {
  const c10::Device cpu(c10::kCPU);
  if (nbytes == 0) return {nullptr, cpu};
  const size_t held = rounded(nbytes);
  void* data = state_->take(held);
  if (!data) data = std::aligned_alloc(kAlignment, held);
  if (!data) {
    release_cache();
    data = std::aligned_alloc(kAlignment, held);
  }
  if (!data)
    throw RunError(concat("no memory for a tensor of ", nbytes, " bytes; ", process().live_bytes,
                          " are in use"));
  auto block =
      std::make_unique<State::Block>(State::Block{data, nbytes, held, current_rank, state_.get()});
  state_->process.add(static_cast<int64_t>(nbytes));
  if (current_rank != kNoRank)
    state_->ranks[static_cast<size_t>(current_rank)].add(static_cast<int64_t>(nbytes));
  return {data, block.release(), &State::give_back, cpu};
}

// Blocks carry a context, so a bare pointer cannot be freed.
c10::DeleterFnPtr CountingAllocator::raw_deleter() const { return nullptr; }

void CountingAllocator::copy_data(void* dest, const void* src, std::size_t count) const {
  std::memcpy(dest, src, count);
}

MemoryCount CountingAllocator::process() const { return state_->process.read(); }

MemoryCount CountingAllocator::rank(int rank) const {
  TRIREME_ASSERT(rank >= 0 && rank < kRanks, "rank ", rank);
  return state_->ranks[static_cast<size_t>(rank)].read();
}

void CountingAllocator::reset_peaks() {
  state_->process.reset();
  for (Count& rank : state_->ranks) rank.reset();
}

int64_t CountingAllocator::cached_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->cached;
}

void CountingAllocator::release_cache() {
  const std::lock_guard lock(state_->mutex);
  while (!state_->by_age.empty()) std::free(state_->drop_oldest());
}

void tune_malloc() {
  ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
  ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
  ::mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace trireme::kernel
