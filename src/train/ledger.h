// ledger.json: where a run's wall time went, in named buckets that add up to it.
//
// Time is charged to exactly one bucket at any instant: that of the innermost open Scope, so inner
// time is not counted twice; outside every scope it is `start` until started() and `other` after
// it. All of it is kept in whole nanoseconds of a monotonic clock, so the buckets of an attempt
// add up to its wall time exactly, and the totals to the attempts'. A clock of the day only labels.
//
// An attempt is one start or resume of the run. Its time since the last write of the file is lost
// when the process is killed; the next attempt then finds it "running" and calls it "unknown".
//
// One owner, one thread: the one that drives the steps. What it waits for is what is measured.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

namespace fs = std::filesystem;

enum class Bucket {
  start,          // from the process's begin to the first step: data, model, checkpoint
  data,           // waiting for samples
  compute,        // forward and backward
  communication,  // waiting for other lanes and ranks
  update,         // clipping and the optimizer
  evaluation,
  sampling,  // generating text to look at
  checkpoint,
  other,  // what no scope covers
};
inline constexpr size_t kBuckets = 9;
std::string_view bucket_name(Bucket bucket);

enum class Outcome { running, finished, stopped, failed, unknown };
std::string_view outcome_name(Outcome outcome);

using BucketTimes = std::array<std::chrono::nanoseconds, kBuckets>;

struct Attempt {
  std::string started, ended;  // "2026-05-01T12:00:00Z"; `ended` is the last write of the file
  Outcome outcome = Outcome::running;
  std::string message;        // why it stopped or failed
  int64_t resumed_after = 0;  // the step of the checkpoint it began from, 0 for a fresh start
  int64_t last_step = 0;      // the last one done; resumed_after if none was
  BucketTimes buckets{};

  std::chrono::nanoseconds wall() const;
};

struct LedgerRecord {
  std::vector<Attempt> attempts;  // oldest first

  BucketTimes totals() const;
  std::chrono::nanoseconds wall() const;
  int64_t repeated_steps() const;  // done by an attempt and again by a later one
};

// A missing file reads as no attempts. RunError when it is no ledger.
LedgerRecord read_ledger(const fs::path& path);

class Ledger {
 public:
  struct Options {
    std::chrono::nanoseconds write_every = std::chrono::seconds(15);  // 0: after each step
    std::chrono::nanoseconds before{0};  // spent by the process before this, goes to `start`
    std::function<std::chrono::nanoseconds()> monotonic;                // empty: steady_clock
    std::function<std::chrono::system_clock::time_point()> wall_clock;  // empty: system_clock
  };

  // Begins the next attempt of the run and writes it down. A file that is no ledger is set aside
  // with a warning: an account that cannot be read must not keep a run from going on.
  Ledger(fs::path path, int64_t resumed_after, Options options);
  Ledger(fs::path path, int64_t resumed_after)
      : Ledger(std::move(path), resumed_after, Options()) {}
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  class [[nodiscard]] Scope {
   public:
    ~Scope() { ledger_.leave(depth_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    friend class Ledger;
    Scope(Ledger& ledger, size_t depth) : ledger_(ledger), depth_(depth) {}
    Ledger& ledger_;
    size_t depth_;
  };
  // const auto time = ledger.in(Bucket::data); scopes close in the reverse order of their opening.
  Scope in(Bucket bucket);

  // The first step is about to begin.
  void started();
  // Step `step` is done; writes the file when that is due. A write that fails is a warning here.
  void step_done(int64_t step);
  // What was charged to `from` was really spent in `to`, as the engine knows afterwards of the
  // waiting inside a step. Never takes more than `from` has; returns what it took.
  std::chrono::nanoseconds move(Bucket from, Bucket to, std::chrono::nanoseconds time);
  // Writes the file now.
  void write();
  // The attempt's end, written down. Later time is not counted.
  void finish(Outcome outcome, std::string message = {});

  // Everything up to now.
  const LedgerRecord& record();

 private:
  void charge();
  void leave(size_t depth);
  Attempt& attempt() { return record_.attempts.back(); }

  fs::path path_;
  Options options_;
  LedgerRecord record_;
  std::vector<Bucket> open_;  // scopes, innermost last; the first is the time outside all scopes
  std::chrono::nanoseconds charged_until_{0}, written_at_{0};
  bool finished_ = false, warned_ = false;
};

}  // namespace trireme
