// Jobs of one call spread over a few threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace trireme {

// Calls run(job, thread) once for every job in [0, jobs), on at most `threads` threads, the
// caller's being thread 0. Which thread takes which job is left to chance, so results must not
// depend on it. The first exception stops the taking of further jobs and is thrown here, after all
// threads ended. Cost: some 20 microseconds for each thread beyond the first.
template <class Run>
void run_jobs(int threads, int64_t jobs, Run&& run) {
  threads = static_cast<int>(std::clamp<int64_t>(jobs, 1, std::max(threads, 1)));
  if (threads == 1) {
    for (int64_t job = 0; job < jobs; ++job) run(job, 0);
    return;
  }
  std::atomic<int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;  // guarded by mutex
  const auto work = [&](int thread) {
    try {
      for (int64_t job; (job = next.fetch_add(1)) < jobs;) run(job, thread);
    } catch (...) {
      next = jobs;
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
    work(0);
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace trireme
