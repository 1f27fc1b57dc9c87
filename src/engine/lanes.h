// The threads of one rank: long-lived, each running whole lists of actions with one-thread
// operators.
//
// Lane n of `count` computes; one more thread, kCommunicationLane, moves data between ranks if
// asked for. The caller's thread only waits, so that a rank's work always runs on the same threads,
// whose caches and arenas stay warm.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme {

class Lanes {
 public:
  // `on_start` runs first on each thread: thread counts, memory scopes. It returns what lives as
  // long as the thread.
  using OnStart = std::function<std::shared_ptr<void>()>;
  Lanes(int count, bool communication, OnStart on_start);
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  int count() const { return count_; }
  bool communicates() const { return communication_; }

  // Runs work(lane) on every lane, and on kCommunicationLane if there is one; returns when all are
  // done. Rethrows the first exception of the lowest lane. One caller at a time.
  void run(const std::function<void(int lane)>& work);

 private:
  void loop(int lane, const OnStart& on_start);

  int count_;
  bool communication_;
  std::mutex mutex_;  // guards all below
  std::condition_variable wake_, done_;
  const std::function<void(int)>* work_ = nullptr;
  uint64_t round_ = 0;
  int running_ = 0;
  bool stop_ = false;
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;
};

}  // namespace trireme
