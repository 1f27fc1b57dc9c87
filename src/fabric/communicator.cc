#include "fabric/communicator.h"

#include <ATen/ops/from_blob.h>

#include <future>

namespace trireme {
namespace {

// More than this many operations started and not done means that nobody waits for them.
constexpr size_t kMaxStarted = 4096;

at::Tensor as_tensor(std::span<double> values) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::kDouble);
}

bool between_two(OpKind kind) { return kind == OpKind::send || kind == OpKind::recv; }

}  // namespace

Traffic::Counts Traffic::total() const {
  Counts total;
  for (const Counts& counts : by_kind) {
    total.calls += counts.calls;
    total.bytes += counts.bytes;
    total.seconds += counts.seconds;
  }
  return total;
}

// A collective in the queue of the communicator's thread.
struct Communicator::Started : Pending::State {
  explicit Started(Call call) : call(std::move(call)), result(promise.get_future().share()) {}

  void wait() override { result.get(); }
  bool done() const override {
    return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  Call call;  // emptied before the promise is kept, so that a kept Pending keeps no tensor
  std::promise<void> promise;
  const std::shared_future<void> result;
};

Communicator::Communicator(std::string name, int rank, std::vector<int> members,
                           std::chrono::milliseconds timeout)
    : name_(std::move(name)),
      rank_(rank),
      members_(std::move(members)),
      timeout_(timeout),
      sent_(members_.size()),
      received_(members_.size()) {
  TRIREME_ASSERT(rank_ >= 0 && rank_ < size(), "group rank ", rank_, " of ", size());
}

Communicator::~Communicator() { TRIREME_ASSERT(!thread_.joinable(), "finish() was not called"); }

void Communicator::all_reduce_sum(std::span<double> values) { all_reduce_sum(as_tensor(values)); }
void Communicator::all_reduce_max(std::span<double> values) { all_reduce_max(as_tensor(values)); }

Pending Communicator::start_or_run(Operation operation, bool start) {
  check_fits(operation, rank_, size());
  Call call{std::move(operation), 0, timeout_};
  if (call.operation.timeout.count() > 0) call.timeout = call.operation.timeout;
  Pending pending;
  if (between_two(call.operation.kind)) {
    pending = begin_transfer(std::move(call), !start);
  } else if (size() == 1) {
    execute_and_count(call);
  } else {
    std::unique_lock lock(mutex_);
    call.sequence = next_sequence_++;
    if (start || !queue_.empty()) {
      pending = enqueue(std::move(call));
    } else {
      lock.unlock();
      execute_and_count(call);
    }
  }
  if (!start) pending.wait();
  return pending;
}

void Communicator::execute_and_count(const Call& call) {
  const auto begin = Clock::now();
  if (size() == 1) execute_alone(call.operation);
  else execute(call);
  count(call.operation, std::chrono::duration<double>(Clock::now() - begin).count());
}

void Communicator::count(const Operation& operation, double seconds) {
  const std::lock_guard lock(mutex_);
  Traffic::Counts& counts = traffic_.by_kind[static_cast<size_t>(operation.kind)];
  ++counts.calls;
  counts.bytes += received_bytes(operation, rank_, size());
  counts.seconds += seconds;
}

Traffic Communicator::traffic() const {
  const std::lock_guard lock(mutex_);
  return traffic_;
}

// --- Sends and receives ---

Pending Communicator::begin_transfer(Call call, bool wait) {
  const auto begin = Clock::now();
  const Operation operation = call.operation;
  auto& sequences = operation.kind == OpKind::send ? sent_ : received_;
  call.sequence = sequences[static_cast<size_t>(operation.peer)]++;
  const std::shared_ptr<Pending::State> state = transfer(std::move(call));
  if (wait) {
    state->wait();
  } else {
    std::erase_if(transfers_, [](const auto& weak) {
      const auto other = weak.lock();
      return !other || other->done();
    });
    transfers_.push_back(state);
  }
  count(operation, std::chrono::duration<double>(Clock::now() - begin).count());
  return Pending(state);
}

// --- The communicator's thread ---

Pending Communicator::enqueue(Call call) {
  if (queue_.size() >= kMaxStarted)
    throw RunError(concat(name_of(call.operation.kind), " #", call.sequence, " in group ", name_,
                          ": ", queue_.size(), " operations are started and not done"));
  auto started = std::make_shared<Started>(std::move(call));
  queue_.push_back(started);
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  changed_.notify_all();
  return Pending(std::move(started));
}

void Communicator::serve() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::shared_ptr<Started> started = queue_.front();
    lock.unlock();
    std::exception_ptr error;
    try {
      execute_and_count(started->call);
    } catch (...) {
      error = std::current_exception();
    }
    started->call.operation = {};
    lock.lock();
    queue_
        .pop_front();  // before the waiter knows, so that what it calls next runs on its own thread
    if (error) started->promise.set_exception(error);
    else started->promise.set_value();
  }
}

void Communicator::finish() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  for (const auto& weak : transfers_) {
    const auto state = weak.lock();
    if (!state) continue;
    try {
      state->wait();
    } catch (const Error&) {
      // Nobody waited for it; the group is dead and says so to whoever calls next.
    }
  }
  transfers_.clear();
}

}  // namespace trireme
