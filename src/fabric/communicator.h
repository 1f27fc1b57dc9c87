// How the ranks of one group exchange tensors.
//
// A Communicator is one rank's end of one group. Its operations are those of fabric/operation.h,
// each either at once (the named calls, run()) or as a Pending (start()); both kinds queue up in
// the order of calls, and every rank of the group makes the same collectives in the same order.
//
// Threads:  one caller at a time; traffic() any. Started collectives run on a thread of the
//           communicator's own, made by the first one; sends and receives need none.
// Failure:  a FabricError. The group is dead then, on all its ranks: what runs, waits or is called
//           later throws. It is never retried on. Other groups go on.
// Time:     every operation has a timeout, counted from when it begins.
// End:      the destructor waits for what was started; an error that nobody waited for is dropped.
// One rank: an operation in a group of one is a bit-exact no-op, or a copy where input and output
//           are two.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "fabric/operation.h"

namespace trireme {

class FabricError : public RunError {
 public:
  // `text` says all of it: "all_reduce_sum #17 in group shard (ranks 0, 2): rank 2 did not …".
  FabricError(std::string group, std::string operation, uint64_t sequence, std::vector<int> missing,
              const std::string& text)
      : RunError(text),
        group_(std::move(group)),
        operation_(std::move(operation)),
        sequence_(sequence),
        missing_(std::move(missing)) {}

  const std::string& group() const { return group_; }
  const std::string& operation() const { return operation_; }  // the one that failed first
  uint64_t sequence() const { return sequence_; }
  const std::vector<int>& missing() const { return missing_; }  // global ranks that had not arrived

 private:
  std::string group_, operation_;
  uint64_t sequence_;
  std::vector<int> missing_;
};

// What a communicator has done so far, for reports.
struct Traffic {
  struct Counts {
    int64_t calls = 0, bytes = 0;  // bytes as received_bytes() counts them
    double seconds = 0;  // in the calls, waiting for others included; a transfer's start only
  };
  std::array<Counts, kOpKinds> by_kind;

  const Counts& operator[](OpKind kind) const { return by_kind[static_cast<size_t>(kind)]; }
  Counts total() const;
};

// An operation that was started. Copies speak of the same one. Any thread.
class Pending {
 public:
  struct State {
    virtual ~State() = default;
    virtual void wait() = 0;  // any number of times
    virtual bool done() const = 0;
  };

  Pending() = default;  // done
  explicit Pending(std::shared_ptr<State> state) : state_(std::move(state)) {}

  // Returns when the operation is done, throws what it failed with.
  void wait() const {
    if (state_) state_->wait();
  }
  bool done() const { return !state_ || state_->done(); }  // or failed

 private:
  std::shared_ptr<State> state_;  // shared by the waiter and whoever executes
};

class Communicator {
 public:
  virtual ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }  // within the group
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const { return members_; }  // global ranks, by group rank
  const std::string& name() const { return name_; }             // "shard", "replica.shard", "world"

  void run(Operation operation) { start_or_run(std::move(operation), false); }
  [[nodiscard]] Pending start(Operation operation) {
    return start_or_run(std::move(operation), true);
  }

  void all_reduce_sum(const at::Tensor& x) { run(op::all_reduce_sum(x)); }
  void all_reduce_max(const at::Tensor& x) { run(op::all_reduce_max(x)); }
  void all_reduce_sum(std::span<double> values);
  void all_reduce_max(std::span<double> values);
  void all_gather(const at::Tensor& piece, const at::Tensor& whole,
                  const std::vector<int64_t>& counts = {}) {
    run(op::all_gather(piece, whole, counts));
  }
  void all_gather_segments(const at::Tensor& shard, const at::Tensor& whole,
                           const SegmentMap& segments) {
    run(op::all_gather_segments(shard, whole, segments));
  }
  void reduce_scatter_sum(const at::Tensor& whole, const at::Tensor& piece,
                          const std::vector<int64_t>& counts = {}) {
    run(op::reduce_scatter_sum(whole, piece, counts));
  }
  void reduce_scatter_segments(const at::Tensor& whole, const at::Tensor& shard,
                               const SegmentMap& segments, bool accumulate = false) {
    run(op::reduce_scatter_segments(whole, shard, segments, accumulate));
  }
  void all_to_all(const at::Tensor& input, const at::Tensor& output,
                  std::vector<int64_t> send_counts, std::vector<int64_t> recv_counts) {
    run(op::all_to_all(input, output, std::move(send_counts), std::move(recv_counts)));
  }
  void broadcast(const at::Tensor& x, int root) { run(op::broadcast(x, root)); }
  void send(const at::Tensor& x, int to) { run(op::send(x, to)); }
  void recv(const at::Tensor& x, int from) { run(op::recv(x, from)); }
  void barrier() { run(op::barrier()); }

  Traffic traffic() const;

 protected:
  using Clock = std::chrono::steady_clock;

  // An operation on its way: checked, numbered.
  struct Call {
    Operation operation;
    uint64_t sequence = 0;  // of this rank's collectives here, or of its transfers with that peer
    std::chrono::milliseconds timeout{0};
  };

  Communicator(std::string name, int rank, std::vector<int> members,
               std::chrono::milliseconds timeout);

  // What a fabric implements, for groups of two and more. execute(): a collective, from begin to
  // end, on the caller's thread or on the communicator's own, one at a time. transfer(): begins a
  // send or a receive; never blocks.
  virtual void execute(const Call& call) = 0;
  virtual std::shared_ptr<Pending::State> transfer(Call call) = 0;

  // A fabric's destructor calls it first: waits for what was started, while execute() can still be
  // called.
  void finish();

 private:
  struct Started;
  Pending start_or_run(Operation operation, bool start);
  Pending enqueue(Call call);
  Pending begin_transfer(Call call, bool wait);
  void execute_and_count(const Call& call);
  void count(const Operation& operation, double seconds);
  void serve();  // the communicator's thread

  const std::string name_;
  const int rank_;
  const std::vector<int> members_;
  const std::chrono::milliseconds timeout_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_. The front of the queue is being executed.
  std::deque<std::shared_ptr<Started>> queue_;
  bool stopping_ = false;
  uint64_t next_sequence_ = 0;
  Traffic traffic_;
  // The caller's.
  std::vector<uint64_t> sent_, received_;  // by group rank
  std::vector<std::weak_ptr<Pending::State>> transfers_;
  std::thread thread_;
};

}  // namespace trireme
