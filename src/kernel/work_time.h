// How long a thread has spent in matrix products and in attention: the figures behind "where a
// step's time goes".
//
// The fused operators that do such work keep the account of the thread that they run on; reference
// operators do not. An operator within another is the outer one's. Cost: two reads of the clock a
// call.
#pragma once

#include <chrono>

namespace trireme::kernel {

struct WorkTime {
  std::chrono::nanoseconds gemm{0}, attention{0};
};

// Of the calling thread, since it began.
inline WorkTime& work_time() {
  thread_local WorkTime time;
  return time;
}

// Adds its own lifetime to one of the two.
class [[nodiscard]] TimedWork {
 public:
  explicit TimedWork(std::chrono::nanoseconds WorkTime::* kind)
      : kind_(kind), before_(work_time()), start_(std::chrono::steady_clock::now()) {}
  ~TimedWork() {
    work_time() = before_;
    work_time().*kind_ += std::chrono::steady_clock::now() - start_;
  }
  TimedWork(const TimedWork&) = delete;
  TimedWork& operator=(const TimedWork&) = delete;

 private:
  std::chrono::nanoseconds WorkTime::* kind_;
  WorkTime before_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace trireme::kernel
