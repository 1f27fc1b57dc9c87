#include "engine/lanes.h"

#include <ATen/Parallel.h>

#include "base/error.h"
#include "plan/program.h"

namespace trireme {

Lanes::Lanes(int count, bool communication, OnStart on_start)
    : count_(count), communication_(communication), errors_(static_cast<size_t>(count) + 1) {
  TRIREME_ASSERT(count > 0);
  for (int lane = 0; lane < count + (communication ? 1 : 0); ++lane)
    threads_.emplace_back(
        [this, lane, on_start] { loop(lane < count_ ? lane : kCommunicationLane, on_start); });
}

Lanes::~Lanes() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Lanes::run(const std::function<void(int)>& work) {
  std::unique_lock lock(mutex_);
  TRIREME_ASSERT(running_ == 0, "two callers at once");
  work_ = &work;
  running_ = static_cast<int>(threads_.size());
  std::ranges::fill(errors_, nullptr);
  ++round_;
  wake_.notify_all();
  done_.wait(lock, [&] { return running_ == 0; });
  work_ = nullptr;
  for (const std::exception_ptr& error : errors_)
    if (error) std::rethrow_exception(error);
}

void Lanes::loop(int lane, const OnStart& on_start) {
  at::set_num_threads(1);
  const std::shared_ptr<void> held = on_start ? on_start() : nullptr;
  uint64_t seen = 0;
  for (;;) {
    const std::function<void(int)>* work = nullptr;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
      work = work_;
    }
    std::exception_ptr error;
    try {
      (*work)(lane);
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    errors_[lane == kCommunicationLane ? errors_.size() - 1 : static_cast<size_t>(lane)] = error;
    if (--running_ == 0) done_.notify_all();
  }
}

}  // namespace trireme
