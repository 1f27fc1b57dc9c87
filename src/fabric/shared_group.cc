#include "fabric/shared_group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/error.h"
#include "fabric/dtype.h"
#include "fabric/reduce.h"
#include "layout/placement.h"

namespace trireme {
namespace {

// As for threads: ranks may outnumber cores, so a waiting rank gives up its turn.
constexpr int kYields = 50;
// Two windows of a rank stay in its core's cache beside the tensor that is copied.
constexpr size_t kWindowBytes = 512 << 10;
// Below this, every rank adds up everything; above, each adds a piece, and pieces are copied.
constexpr int64_t kDirectBytes = 16 << 10;
// A rank's supervisor knows better why it is gone, and gets so many slices to say it.
constexpr int kPatience = 10;

std::byte* bytes(const at::Tensor& x) { return static_cast<std::byte*>(x.mutable_data_ptr()); }
const std::byte* const_bytes(const at::Tensor& x) {
  return static_cast<const std::byte*>(x.const_data_ptr());
}
int64_t width(const at::Tensor& x) { return static_cast<int64_t>(x.element_size()); }

void copy_bytes(std::byte* to, const std::byte* from, int64_t nbytes) {
  if (nbytes > 0) std::memmove(to, from, static_cast<size_t>(nbytes));
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// The stretches of the whole buffer that elements [begin, end) of a shard stand for:
// visit(element of the shard, element of the whole, numel).
template <class F>
void each_run(const std::vector<Segment>& segments, int64_t begin, int64_t end, F visit) {
  int64_t at = 0;
  for (const Segment& segment : segments) {
    const int64_t from = std::max(begin, at), to = std::min(end, at + segment.numel);
    if (from < to) visit(from, segment.offset + from - at, to - from);
    at += segment.numel;
    if (at >= end) return;
  }
}

int64_t largest_shard(const SegmentMap& segments) {
  int64_t most = 0;
  for (int r = 0; r < segments.ranks(); ++r) most = std::max(most, segments.numel_of(r));
  return most;
}

}  // namespace

struct SharedGroup::Header {
  int64_t sequence;
  OpKind kind;
  DType in, out;
  int32_t peer;
  int64_t numel;
  uint64_t segments_hash;

  bool operator==(const Header&) const = default;
};

// The head of the area; the ranks' windows and the channels follow.
struct SharedGroup::Shared {
  alignas(64) SharedWord phase;  // rounds that all have met in, modulo 2^32
  SharedWord arrived, sleepers;
  alignas(64) std::atomic<uint32_t> failed;  // 0 no, 1 being written, 2 yes
  char operation[32], reason[2048];
  uint64_t sequence;
  int32_t missing_count;
  int32_t missing[SharedRegion::kMaxRanks];
  struct Rank {
    alignas(64) std::atomic<uint64_t> rounds;  // in which it has arrived
    SharedWord bell;
  } by_rank[SharedRegion::kMaxRanks];
};

SharedGroup::SharedGroup(SharedRegion& region, std::string name, const std::string& key,
                         std::vector<int> members, uint64_t build)
    : region_(region),
      name_(std::move(name)),
      members_(std::move(members)),
      rank_(static_cast<int>(std::ranges::find(members_, region.rank()) - members_.begin())),
      window_bytes_(kWindowBytes),
      rank_bytes_(2 * (window_bytes_ + 64 + 2 * members_.size() * sizeof(int64_t))),
      area_(region.map_group(name_, key, members_, build,
                             sizeof(Shared) + 64 + members_.size() * rank_bytes_ +
                                 members_.size() * members_.size() * (sizeof(Channel) + 64))),
      shared_(reinterpret_cast<Shared*>(area_.data())),
      gone_slices_(members_.size()) {
  static_assert(sizeof(Header) <= 64);
  static_assert(SharedWord::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);
}

// --- Places

SharedGroup::Header& SharedGroup::header(int rank) const {
  std::byte* first = area_.data() + sizeof(Shared) + static_cast<size_t>(rank) * rank_bytes_;
  return *reinterpret_cast<Header*>(first + round_ % 2 * (rank_bytes_ / 2));
}

int64_t* SharedGroup::announced(int rank) const {
  return reinterpret_cast<int64_t*>(reinterpret_cast<std::byte*>(&header(rank)) + 64);
}

std::byte* SharedGroup::window(int rank) const {
  return reinterpret_cast<std::byte*>(announced(rank) + 2 * members_.size());
}

SharedGroup::Channel& SharedGroup::channel(int from, int to) {
  const size_t first = (sizeof(Shared) + members_.size() * rank_bytes_ + 63) / 64 * 64;
  const auto index = static_cast<size_t>(from * size() + to);
  return *reinterpret_cast<Channel*>(area_.data() + first + index * sizeof(Channel));
}

SharedWord& SharedGroup::bell(int rank) { return shared_->by_rank[rank].bell; }

void SharedGroup::ring(int rank) {
  ++bell(rank);
  wake_all(bell(rank));
}

// --- Meeting

void SharedGroup::announce(const Call& call) {
  const Signature signature = signature_of(call.operation);
  header(rank_) = {.sequence = static_cast<int64_t>(call.sequence),
                   .kind = signature.kind,
                   .in = signature.in,
                   .out = signature.out,
                   .peer = signature.peer,
                   .numel = signature.numel,
                   .segments_hash = signature.segments_hash};
  std::ranges::copy(signature.send_counts, announced(rank_));
  std::ranges::copy(signature.recv_counts, announced(rank_) + size());
}

void SharedGroup::check_signatures(const Call& call) {
  bool equal = true;
  for (int r = 0; r < size(); ++r) equal = equal && header(r) == header(rank_);
  if (equal && call.operation.kind != OpKind::all_to_all) return;
  std::vector<Signature> signatures;
  for (int r = 0; r < size(); ++r) {
    const Header& h = header(r);
    Signature& s = signatures.emplace_back(
        Signature{h.kind, h.peer, h.in, h.out, h.numel, h.segments_hash, {}, {}});
    if (h.kind != OpKind::all_to_all) continue;
    s.send_counts.assign(announced(r), announced(r) + size());
    s.recv_counts.assign(announced(r) + size(), announced(r) + 2 * size());
  }
  const std::string wrong = disagreement(signatures, members_);
  if (wrong.empty()) return;
  fail({std::string(name_of(call.operation.kind)), call.sequence, {}, wrong});
  throw_dead(call.operation.kind, call.sequence);
}

void SharedGroup::meet(const Call& call) {
  const auto phase = static_cast<uint32_t>(round_);
  shared_->by_rank[rank_].rounds.store(++round_, std::memory_order_release);
  --round_;  // until all have met, this is still its round
  if (shared_->arrived.fetch_add(1) + 1 == static_cast<uint32_t>(size())) {
    shared_->arrived = 0;
    shared_->phase.store(phase + 1);
    if (shared_->sleepers > 0) wake_all(shared_->phase);
    return;
  }
  for (int i = 0; i < kYields; ++i) {
    if (shared_->phase.load(std::memory_order_acquire) != phase) return;
    std::this_thread::yield();
  }
  sleep_until_met(call, phase);
}

void SharedGroup::sleep_until_met(const Call& call, uint32_t phase) {
  const OpKind kind = call.operation.kind;
  ++shared_->sleepers;
  const auto met = [&] { return shared_->phase.load() != phase; };
  const auto give_up = [&] {
    --shared_->sleepers;
    throw_dead(kind, call.sequence);
  };
  while (!met()) {
    if (dead() && !met()) give_up();
    if (const std::vector<int> lost = absent(true); !lost.empty() && !met())
      fail({std::string(name_of(kind)), call.sequence, lost, ended_without_it(lost)});
    else if (Clock::now() >= call.deadline && !met())
      fail({std::string(name_of(kind)), call.sequence, absent(false),
            did_not_arrive(absent(false), call.timeout)});
    else sleep_on(shared_->phase, phase, kSlice);
  }
  --shared_->sleepers;
}

bool SharedGroup::is_lost(int rank, bool& left) {
  left = region_.has_left(global(rank));
  if (left) return true;
  int& slices = gone_slices_[static_cast<size_t>(rank)];
  slices = region_.is_gone(global(rank)) ? slices + 1 : 0;
  return slices > (region_.supervised() ? kPatience : 0);
}

// Global ranks that have not arrived in this round. Whether a rank has ended is asked first: what
// it did before is seen then.
std::vector<int> SharedGroup::absent(bool lost_only) {
  std::vector<int> ranks;
  for (int r = 0; r < size(); ++r) {
    if (shared_->by_rank[r].rounds.load(std::memory_order_acquire) > round_) continue;
    bool left = false;
    if (lost_only && !is_lost(r, left)) continue;
    if (shared_->by_rank[r].rounds.load(std::memory_order_acquire) > round_) continue;
    ranks.push_back(global(r));
  }
  return ranks;
}

// --- Collectives

void SharedGroup::collective(const Operation& operation, uint64_t sequence, Milliseconds timeout) {
  if (dead()) throw_dead(operation.kind, sequence);
  const Call call{operation, sequence, timeout, Clock::now() + timeout};
  switch (operation.kind) {
    case OpKind::all_reduce_sum:
    case OpKind::all_reduce_max:
      return all_reduce(call);
    case OpKind::all_gather:
      return all_gather(call);
    case OpKind::reduce_scatter_sum:
      return reduce_scatter(call);
    case OpKind::all_to_all:
      return all_to_all(call);
    case OpKind::broadcast:
      return broadcast(call);
    case OpKind::barrier:
      return rounds(call, [] { return 1; }, [](int64_t) {}, [](int64_t) {});
    case OpKind::send:
    case OpKind::recv:
      TRIREME_ASSERT(false, name_of(operation.kind), " is no collective");
  }
}

// write(i) fills this rank's window, read(i) uses the others'. `count` is asked once all know each
// other's signatures; at least one round is held.
template <class Write, class Read>
void SharedGroup::rounds(const Call& call, const std::function<int64_t()>& count, Write write,
                         Read read) {
  int64_t total = 1;
  for (int64_t i = 0; i < total; ++i) {
    if (i == 0) announce(call);
    write(i);
    meet(call);
    if (i == 0) {
      check_signatures(call);
      total = std::max<int64_t>(1, count());
    }
    read(i);
    ++round_;
  }
}

void SharedGroup::all_reduce(const Call& call) {
  const at::Tensor& x = call.operation.output;
  const int64_t element = width(x), step = static_cast<int64_t>(window_bytes_) / element;
  const DType dtype = dtype_of(x.scalar_type());
  const auto reduce = [&](std::span<const std::byte* const> from, std::byte* to, int64_t numel) {
    const bool sums = call.operation.kind == OpKind::all_reduce_sum;
    (sums ? sum_in_order : max_in_order)(dtype, from, {&to, 1}, numel);
  };
  const bool direct = size() == 2 || static_cast<int64_t>(x.nbytes()) <= kDirectBytes;
  const auto stretch = [&](int64_t i) {
    return Range{std::min(i * step, x.numel()), std::min((i + 1) * step, x.numel())};
  };
  std::vector<const std::byte*> sources(members_.size());
  rounds(
      call, [&] { return divide_up(x.numel(), step); },
      [&](int64_t i) {
        const Range at = stretch(i);
        copy_bytes(window(rank_), const_bytes(x) + at.begin * element, at.size() * element);
      },
      [&](int64_t i) {
        const Range at = stretch(i);
        std::byte* mine = bytes(x) + at.begin * element;
        const Range piece = direct ? Range{0, at.size()} : even_piece(at.size(), size(), rank_);
        for (int r = 0; r < size(); ++r)
          sources[static_cast<size_t>(r)] = (r == rank_ ? mine : window(r)) + piece.begin * element;
        if (direct) return reduce(sources, mine, piece.size());
        // The piece goes into the next round's window, from which all copy it.
        ++round_;
        reduce(sources, window(rank_) + piece.begin * element, piece.size());
        meet(call);
        for (int r = 0; r < size(); ++r) {
          const Range theirs = even_piece(at.size(), size(), r);
          copy_bytes(mine + theirs.begin * element, window(r) + theirs.begin * element,
                     theirs.size() * element);
        }
      });
}

void SharedGroup::all_gather(const Call& call) {
  const Operation& o = call.operation;
  const int64_t element = width(o.output), step = static_cast<int64_t>(window_bytes_) / element;
  const auto stretch = [&](int rank, int64_t i) {
    const int64_t numel = rank < o.segments.ranks() ? o.segments.numel_of(rank) : 0;
    return Range{std::min(i * step, numel), std::min((i + 1) * step, numel)};
  };
  rounds(
      call, [&] { return divide_up(largest_shard(o.segments), step); },
      [&](int64_t i) {
        const Range at = stretch(rank_, i);
        copy_bytes(window(rank_), const_bytes(o.input) + at.begin * element, at.size() * element);
      },
      [&](int64_t i) {
        for (int next = 0; next < size(); ++next) {
          const int r = (rank_ + next) % size();
          const Range at = stretch(r, i);
          if (at.size() == 0) continue;
          const std::byte* from =
              r == rank_ ? const_bytes(o.input) : window(r) - at.begin * element;
          each_run(o.segments.of(r), at.begin, at.end,
                   [&](int64_t shard, int64_t whole, int64_t numel) {
                     copy_bytes(bytes(o.output) + whole * element, from + shard * element,
                                numel * element);
                   });
        }
      });
}

void SharedGroup::reduce_scatter(const Call& call) {
  const Operation& o = call.operation;
  const int64_t element = width(o.input), out_element = width(o.output);
  // A window has a part for each receiver.
  const int64_t part = static_cast<int64_t>(window_bytes_) / size() / 64 * 64;
  const int64_t step = part / element;
  const DType in = dtype_of(o.input.scalar_type()), out = dtype_of(o.output.scalar_type());
  const auto stretch = [&](int rank, int64_t i) {
    const int64_t numel = rank < o.segments.ranks() ? o.segments.numel_of(rank) : 0;
    return Range{std::min(i * step, numel), std::min((i + 1) * step, numel)};
  };
  std::vector<const std::byte*> sources(members_.size());
  rounds(
      call, [&] { return divide_up(largest_shard(o.segments), step); },
      [&](int64_t i) {
        for (int r = 0; r < size(); ++r) {
          const Range at = stretch(r, i);
          if (r == rank_ || at.size() == 0) continue;
          std::byte* to = window(rank_) + r * part - at.begin * element;
          each_run(o.segments.of(r), at.begin, at.end,
                   [&](int64_t shard, int64_t whole, int64_t numel) {
                     copy_bytes(to + shard * element, const_bytes(o.input) + whole * element,
                                numel * element);
                   });
        }
      },
      [&](int64_t i) {
        const Range at = stretch(rank_, i);
        if (at.size() == 0) return;
        each_run(o.segments.of(rank_), at.begin, at.end,
                 [&](int64_t shard, int64_t whole, int64_t numel) {
                   for (int r = 0; r < size(); ++r)
                     sources[static_cast<size_t>(r)] =
                         r == rank_ ? const_bytes(o.input) + whole * element
                                    : window(r) + rank_ * part + (shard - at.begin) * element;
                   sum_in_order_to(in, sources, out, bytes(o.output) + shard * out_element, numel,
                                   o.accumulate);
                 });
      });
}

void SharedGroup::all_to_all(const Call& call) {
  const Operation& o = call.operation;
  const int64_t element = width(o.output);
  const int64_t part = static_cast<int64_t>(window_bytes_) / size() / 64 * 64;
  const int64_t step = part / element;
  const auto starts = [](const std::vector<int64_t>& counts) {
    std::vector<int64_t> at(1, 0);
    for (int64_t count : counts) at.push_back(at.back() + count);
    return at;
  };
  const std::vector<int64_t> sends = starts(o.send_counts), receives = starts(o.recv_counts);
  const auto stretch = [&](const std::vector<int64_t>& at, int rank, int64_t i) {
    const int64_t begin = at[static_cast<size_t>(rank)], end = at[static_cast<size_t>(rank) + 1];
    return Range{std::min(begin + i * step, end), std::min(begin + (i + 1) * step, end)};
  };
  rounds(
      call,
      [&] {
        int64_t most = 0;
        for (int r = 0; r < size(); ++r)
          most = std::max(most, *std::max_element(announced(r), announced(r) + size()));
        return divide_up(most, step);
      },
      [&](int64_t i) {
        for (int r = 0; r < size(); ++r) {
          const Range at = stretch(sends, r, i);
          if (r != rank_)
            copy_bytes(window(rank_) + r * part, const_bytes(o.input) + at.begin * element,
                       at.size() * element);
        }
      },
      [&](int64_t i) {
        for (int r = 0; r < size(); ++r) {
          const Range at = stretch(receives, r, i);
          const std::byte* from = r == rank_
                                      ? const_bytes(o.input) + stretch(sends, r, i).begin * element
                                      : window(r) + rank_ * part;
          copy_bytes(bytes(o.output) + at.begin * element, from, at.size() * element);
        }
      });
}

void SharedGroup::broadcast(const Call& call) {
  const Operation& o = call.operation;
  const auto step = static_cast<int64_t>(window_bytes_);
  const auto nbytes = static_cast<int64_t>(o.output.nbytes());
  const auto stretch = [&](int64_t i) {
    return Range{std::min(i * step, nbytes), std::min((i + 1) * step, nbytes)};
  };
  rounds(
      call, [&] { return divide_up(nbytes, step); },
      [&](int64_t i) {
        if (rank_ != o.peer) return;
        const Range at = stretch(i);
        copy_bytes(window(rank_), const_bytes(o.input) + at.begin, at.size());
      },
      [&](int64_t i) {
        if (rank_ == o.peer) return;
        const Range at = stretch(i);
        copy_bytes(bytes(o.output) + at.begin, window(o.peer), at.size());
      });
}

// --- Failure

void SharedGroup::fail(const GroupFailure& failure) {
  uint32_t none = 0;
  if (!shared_->failed.compare_exchange_strong(none, 1)) {
    while (shared_->failed != 2) std::this_thread::yield();
    return;
  }
  const auto put = [](char* to, size_t capacity, const std::string& text) {
    const size_t length = std::min(text.size(), capacity - 1);
    std::memcpy(to, text.data(), length);
    to[length] = 0;
  };
  put(shared_->operation, sizeof shared_->operation, failure.operation);
  put(shared_->reason, sizeof shared_->reason, failure.reason);
  shared_->sequence = failure.sequence;
  shared_->missing_count = static_cast<int32_t>(failure.missing.size());
  std::ranges::copy(failure.missing, shared_->missing);
  shared_->failed = 2;
  wake_all(shared_->phase);
  for (int r = 0; r < size(); ++r) ring(r);
}

bool SharedGroup::dead() const { return shared_->failed == 2 || region_.failure().has_value(); }

std::optional<GroupFailure> SharedGroup::failure() const {
  if (shared_->failed == 2)
    return GroupFailure{shared_->operation,
                        shared_->sequence,
                        {shared_->missing, shared_->missing + shared_->missing_count},
                        shared_->reason};
  if (const auto failed = region_.failure())
    return GroupFailure{
        "", 0, {failed->rank}, concat("rank ", failed->rank, " failed: ", failed->text)};
  return std::nullopt;
}

void SharedGroup::throw_dead(OpKind kind, uint64_t sequence) const {
  throw_failure(name_, members_, *failure(), kind, sequence);
}

}  // namespace trireme
