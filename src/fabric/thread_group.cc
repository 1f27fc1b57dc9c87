#include "fabric/thread_group.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "fabric/share.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

// A rank that waits gives up its turn this many times before it sleeps. Ranks outnumber cores, so
// that spinning would keep the awaited rank from running.
constexpr int kYields = 20;

// Sends that wait for one receiver. More means that nobody receives.
constexpr size_t kMaxPosted = 4096;

}  // namespace

// A send or a receive that has met no partner yet, or is being copied, or is over.
struct ThreadGroup::Posted : Pending::State {
  enum class Stage { waiting, copying, done, failed };

  void wait() override { group->await_transfer(self.lock()); }
  bool done() const override {
    const std::lock_guard lock(group->mutex_);
    return stage == Stage::done || stage == Stage::failed;
  }

  std::shared_ptr<ThreadGroup>
      group;  // shared: a Pending may be asked after its communicator is gone
  std::weak_ptr<Posted> self;
  Operation operation;  // let go when over
  OpKind kind = OpKind::send;
  uint64_t sequence = 0;
  int partner = 0;  // group rank
  Milliseconds timeout{0};
  Clock::time_point deadline;
  Stage stage = Stage::waiting;  // guarded by the group's mutex
};

ThreadGroup::ThreadGroup(std::string name, std::vector<int> members)
    : name_(std::move(name)),
      members_(std::move(members)),
      operations_(members_.size()),
      left_(members_.size()) {}

// --- Collectives ---

void ThreadGroup::collective(int rank, const Operation& operation, uint64_t sequence,
                             Milliseconds timeout) {
  meet(rank, operation, sequence, timeout);
  execute_share(operations_, rank);
  part();
}

void ThreadGroup::next_phase() {
  phase_.fetch_add(1, std::memory_order_release);
  changed_.notify_all();
}

// Returns when the phase is over, the group has failed, or the deadline has passed.
void ThreadGroup::await_phase(std::unique_lock<std::mutex>& lock, uint64_t phase,
                              Clock::time_point deadline) {
  const auto over = [&] { return phase_.load(std::memory_order_acquire) != phase; };
  lock.unlock();
  for (int i = 0; i < kYields && !over(); ++i) std::this_thread::yield();
  lock.lock();
  changed_.wait_until(lock, deadline, [&] { return over() || failure_.has_value(); });
}

void ThreadGroup::meet(int rank, const Operation& operation, uint64_t sequence,
                       Milliseconds timeout) {
  std::unique_lock lock(mutex_);
  if (failure_) throw_failure(operation.kind, sequence);
  operations_[static_cast<size_t>(rank)] = &operation;
  meeting_sequence_ = sequence;
  if (++arrived_ == static_cast<int>(members_.size())) {
    std::vector<Signature> signatures;
    for (const Operation* each : operations_) signatures.push_back(signature_of(*each));
    const std::string wrong = disagreement(signatures, members_);
    if (!wrong.empty()) {
      fail({std::string(name_of(operation.kind)), sequence, {}, wrong});
      throw_failure(operation.kind, sequence);
    }
    arrived_ = 0;
    return next_phase();
  }
  const uint64_t phase = phase_;
  const auto missing = [&](bool gone_only) {
    std::vector<int> ranks;
    for (size_t r = 0; r < members_.size(); ++r)
      if (!operations_[r] && (!gone_only || left_[r])) ranks.push_back(members_[r]);
    return ranks;
  };
  if (const std::vector<int> gone = missing(true); !gone.empty())
    fail({std::string(name_of(operation.kind)), sequence, gone, ended_without_it(gone)});
  else await_phase(lock, phase, Clock::now() + timeout);
  if (phase_ != phase) return;  // all have met, even if the group has failed since
  if (!failure_)
    fail({std::string(name_of(operation.kind)), sequence, missing(false),
          did_not_arrive(missing(false), timeout)});
  throw_failure(operation.kind, sequence);
}

// Nobody may leave while a peer is still at work on its memory, so this waits without a limit; what
// peers do is finite.
void ThreadGroup::part() {
  std::unique_lock lock(mutex_);
  if (++finished_ == static_cast<int>(members_.size())) {
    finished_ = 0;
    std::ranges::fill(operations_, nullptr);
    return next_phase();
  }
  const uint64_t phase = phase_;
  lock.unlock();
  for (int i = 0; i < kYields && phase_.load(std::memory_order_acquire) == phase; ++i)
    std::this_thread::yield();
  lock.lock();
  changed_.wait(lock, [&] { return phase_ != phase; });
}

// --- Sends and receives ---

std::shared_ptr<Pending::State> ThreadGroup::transfer(int rank, Operation operation,
                                                      uint64_t sequence, Milliseconds timeout) {
  const OpKind kind = operation.kind;
  auto mine = std::make_shared<Posted>();
  mine->group = shared_from_this();
  mine->self = mine;
  mine->kind = kind;
  mine->sequence = sequence;
  mine->partner = operation.peer;
  mine->timeout = timeout;
  mine->deadline = Clock::now() + timeout;
  mine->operation = std::move(operation);

  std::unique_lock lock(mutex_);
  if (failure_) throw_failure(kind, sequence);
  const bool sends = kind == OpKind::send;
  auto& queue = posted_[sends ? std::pair(rank, mine->partner) : std::pair(mine->partner, rank)];
  if (queue.empty() || queue.front()->kind == kind) {
    if (left(mine->partner) || queue.size() >= kMaxPosted) {
      const bool gone = left(mine->partner);
      fail({std::string(name_of(kind)),
            sequence,
            {global(mine->partner)},
            gone ? ended_without_it({global(mine->partner)})
                 : concat("rank ", global(mine->partner), " has left ", queue.size(),
                          " of them without an answer")});
      throw_failure(kind, sequence);
    }
    queue.push_back(mine);
    return mine;
  }
  const std::shared_ptr<Posted> other = queue.front();
  const at::Tensor& from = (sends ? mine : other)->operation.input;
  const at::Tensor& to = (sends ? other : mine)->operation.output;
  if (from.scalar_type() != to.scalar_type() || from.numel() != to.numel()) {
    const Posted &sender = sends ? *mine : *other, &receiver = sends ? *other : *mine;
    fail({std::string(name_of(kind)),
          sequence,
          {},
          concat("rank ", global(receiver.partner), " calls ",
                 describe(signature_of(sender.operation)), ", rank ", global(sender.partner),
                 " calls ", describe(signature_of(receiver.operation)))});
    throw_failure(kind, sequence);
  }
  queue.pop_front();
  other->stage = mine->stage = Posted::Stage::copying;  // from here on neither side can give up
  lock.unlock();
  if (from.nbytes() > 0) std::memcpy(to.mutable_data_ptr(), from.const_data_ptr(), from.nbytes());
  lock.lock();
  other->stage = mine->stage = Posted::Stage::done;
  other->operation = mine->operation = {};
  changed_.notify_all();
  return mine;
}

void ThreadGroup::await_transfer(const std::shared_ptr<Posted>& posted) {
  using Stage = Posted::Stage;
  std::unique_lock lock(mutex_);
  const auto over = [&] { return posted->stage == Stage::done || posted->stage == Stage::failed; };
  if (!changed_.wait_until(lock, posted->deadline, over)) {
    if (posted->stage == Stage::waiting)
      fail({std::string(name_of(posted->kind)),
            posted->sequence,
            {global(posted->partner)},
            did_not_answer(posted->kind, global(posted->partner), posted->timeout)});
    changed_.wait(lock, over);
  }
  if (posted->stage == Stage::failed) throw_failure(posted->kind, posted->sequence);
}

// --- Failure ---

void ThreadGroup::fail(GroupFailure failure) {
  if (failure_) return;
  failure_ = std::move(failure);
  for (auto& [pair, queue] : posted_)
    for (const auto& posted : queue) {
      posted->stage = Posted::Stage::failed;
      posted->operation = {};
    }
  posted_.clear();
  changed_.notify_all();
}

void ThreadGroup::throw_failure(OpKind kind, uint64_t sequence) const {
  trireme::throw_failure(name_, members_, *failure_, kind, sequence);
}

void ThreadGroup::abort(int global_rank, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  fail({"", 0, {global_rank}, concat("rank ", global_rank, " failed: ", reason)});
}

void ThreadGroup::leave(int global_rank) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(members_, global_rank);
  if (found == members_.end()) return;
  const auto rank = static_cast<int>(found - members_.begin());
  left_[static_cast<size_t>(rank)] = true;
  if (failure_) return;  // and operations_ may name what is gone
  const std::string reason = ended_without_it({global_rank});
  if (arrived_ > 0 && !operations_[static_cast<size_t>(rank)]) {
    const auto waiting =
        std::ranges::find_if(operations_, [](const Operation* o) { return o != nullptr; });
    fail({std::string(name_of((*waiting)->kind)), meeting_sequence_, {global_rank}, reason});
  }
  for (const auto& [pair, queue] : posted_)
    if ((pair.first == rank || pair.second == rank) && !queue.empty() &&
        queue.front()->partner == rank) {
      fail({std::string(name_of(queue.front()->kind)),
            queue.front()->sequence,
            {global_rank},
            reason});
      return;  // fail() has emptied the map
    }
}

}  // namespace trireme
