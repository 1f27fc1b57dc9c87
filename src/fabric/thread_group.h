// The meeting place of the threads that are the ranks of one group.
//
// A collective has three parts: meet() until all ranks have brought an operation, each rank's share
// of the work on everybody's memory, and part() until all have done theirs. Whether a meeting opens
// or fails is decided once, under the mutex, so no rank ever leaves while another reads its memory.
//
// Threads: all. Blocking: collective() and Pending::wait(), until the timeout; part() only as long
// as peers copy.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "fabric/communicator.h"
#include "fabric/group_failure.h"

namespace trireme {

// Shared by the members' communicators and by transfers, which may be asked after those are gone.
class ThreadGroup : public std::enable_shared_from_this<ThreadGroup> {
 public:
  using Milliseconds = std::chrono::milliseconds;

  ThreadGroup(std::string name, std::vector<int> members);

  const std::vector<int>& members() const { return members_; }

  void collective(int rank, const Operation& operation, uint64_t sequence, Milliseconds timeout);
  std::shared_ptr<Pending::State> transfer(int rank, Operation operation, uint64_t sequence,
                                           Milliseconds timeout);

  // A global rank has failed, for this reason: everything that waits and everything that follows
  // throws it.
  void abort(int global_rank, const std::string& reason);
  // A global rank has ended: whatever waits for it fails now.
  void leave(int global_rank);

 private:
  struct Posted;

  void meet(int rank, const Operation& operation, uint64_t sequence, Milliseconds timeout);
  void part();
  void await_phase(std::unique_lock<std::mutex>& lock, uint64_t phase,
                   std::chrono::steady_clock::time_point deadline);
  void next_phase();

  void fail(GroupFailure failure);  // the first one counts
  [[noreturn]] void throw_failure(OpKind kind, uint64_t sequence) const;
  void await_transfer(const std::shared_ptr<Posted>& posted);
  bool left(int rank) const { return left_[static_cast<size_t>(rank)]; }
  int global(int rank) const { return members_[static_cast<size_t>(rank)]; }

  const std::string name_;
  const std::vector<int> members_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<uint64_t> phase_ = 0;  // openings and partings; written under mutex_
  // Guarded by mutex_. operations_ is read without it between meet() and part(), while nobody
  // writes it.
  std::vector<const Operation*> operations_;
  int arrived_ = 0, finished_ = 0;
  uint64_t meeting_sequence_ = 0;  // of the ranks that have arrived
  std::vector<bool> left_;
  std::optional<GroupFailure> failure_;
  // Sends, or receives, that have met no partner, by (sender, receiver).
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Posted>>> posted_;
};

}  // namespace trireme
