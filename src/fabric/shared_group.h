// One rank's end of a group whose members share memory.
//
// Each rank has two windows that all can read. A collective runs in rounds: a rank copies what
// others need of its next stretch into one window, all meet, then each reads from the others'
// windows while the other window is filled. One meeting a round is enough: who has passed meeting
// t + 1 has finished reading round t, whose window round t + 2 writes. Sums add windows in rank
// order, so their bits are those of the thread fabric.
//
// The first round of an operation carries its signature; all ranks compare all signatures before
// anything is written to an output.
//
// Waiting: a few turns given up, then a sleep on a shared word, at most kSlice at a time, after
// which the failures of others, the absence of the awaited and the deadline are looked at.
//
// Threads: collective() one at a time; fail() and dead() any.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/group_failure.h"
#include "fabric/operation.h"
#include "fabric/shared_region.h"

namespace trireme {

class SharedGroup {
 public:
  using Clock = std::chrono::steady_clock;
  using Milliseconds = std::chrono::milliseconds;
  static constexpr int kSlice = 20;  // milliseconds

  // A ring of bytes from one rank to another. The sender writes `head`, the receiver `tail`.
  struct Channel {
    static constexpr uint64_t kBytes = 256 << 10;
    alignas(64) std::atomic<uint64_t> head;
    alignas(64) std::atomic<uint64_t> tail;
    alignas(64) std::byte data[kBytes];
  };

  SharedGroup(SharedRegion& region, std::string name, const std::string& key,
              std::vector<int> members, uint64_t build);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(members_.size()); }
  int global(int rank) const { return members_[static_cast<size_t>(rank)]; }
  const std::vector<int>& members() const { return members_; }

  void collective(const Operation& operation, uint64_t sequence, Milliseconds timeout);

  // --- For transfers
  Channel& channel(int from, int to);
  SharedWord& bell(int rank);  // rung when something moved on a channel of this rank
  void ring(int rank);
  bool is_lost(int rank, bool& left);  // has ended, properly or not; a system call

  // --- Failure. The first one counts, on all ranks.
  void fail(const GroupFailure& failure);
  std::optional<GroupFailure> failure() const;  // of the group, or of the run
  bool dead() const;
  [[noreturn]] void throw_dead(OpKind kind, uint64_t sequence) const;

 private:
  struct Header;
  struct Shared;
  struct Window;
  struct Call {
    const Operation& operation;
    uint64_t sequence;
    Milliseconds timeout;
    Clock::time_point deadline;
  };

  std::byte* window(int rank) const;  // of the present round
  int64_t* announced(int rank) const;
  Header& header(int rank) const;
  void announce(const Call& call);
  void check_signatures(const Call& call);
  void meet(const Call& call);
  void sleep_until_met(const Call& call, uint32_t phase);
  std::vector<int> absent(bool lost_only);

  template <class Write, class Read>
  void rounds(const Call& call, const std::function<int64_t()>& count, Write write, Read read);
  void all_reduce(const Call& call);
  void all_gather(const Call& call);
  void reduce_scatter(const Call& call);
  void all_to_all(const Call& call);
  void broadcast(const Call& call);

  SharedRegion& region_;
  const std::string name_;
  const std::vector<int> members_;
  int rank_ = 0;
  size_t window_bytes_, rank_bytes_;
  SharedRegion::Area area_;
  Shared* shared_;
  uint64_t round_ = 0;
  std::vector<int> gone_slices_;  // for how many slices a member's process has not been there
};

}  // namespace trireme
