// Cuts the power, and fails the disk, at every operation of a small run's saves.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "state/fault_storage.h"
#include "state/test_store.h"

namespace trireme {
namespace {

using namespace testing;
using Unsynced = MemoryStorage::Unsynced;

constexpr const char* kCheckpoints = "run/checkpoints";

// What a run does to its checkpoints: saves by one rank and by three, one step twice, retention,
// and clearing up at a start. `committed` is the step whose commit was the last one to return.
void run(Storage& storage, int64_t& committed) {
  const auto save_step = [&](int64_t step, const Cut& cut) {
    const std::string name = save(storage, kCheckpoints, step, cut).filename();
    committed = step;
    prune_checkpoints(storage, kCheckpoints, {.keep = 2, .trusted = name});
  };
  remove_leftovers(storage, kCheckpoints);
  const int64_t blocks = 256;  // some tensors have several
  save_step(10, {.block_bytes = blocks});
  save_step(20, {.ranks = 3, .seed = 1, .block_bytes = blocks});
  save_step(20, {.block_bytes = blocks});
  save_step(30, {.ranks = 3, .seed = 2, .block_bytes = blocks});
  remove_leftovers(storage, kCheckpoints);
  save_step(40, {.block_bytes = blocks});
}

MemoryStorage& with_run_directory(MemoryStorage& disk) {
  disk.make_directory("run");
  disk.sync_directory("");
  return disk;
}

int64_t operations_of_a_run() {
  MemoryStorage disk;
  FaultStorage counting(with_run_directory(disk), {});
  int64_t committed = -1;
  run(counting, committed);
  return counting.operations();
}

// "" if the newest checkpoint is complete and no older than the last commit that returned, and the
// run can go on from it; else what is wrong.
std::string wrong_after_crash(Storage& disk, int64_t committed) {
  try {
    const auto newest = newest_committed(disk, kCheckpoints);
    if (!newest && committed >= 0) return concat("step ", committed, " is lost");
    if (newest) {
      const Checkpoint checkpoint = Checkpoint::open(disk, *newest);
      if (checkpoint.info().step < committed)
        return concat("step ", committed, " is lost, the newest is ", checkpoint.info().step);
      if (const auto difference = difference_from_saved(checkpoint); !difference.empty())
        return concat(newest->string(), ": ", difference);
      if (!checkpoint.verify().empty()) return checkpoint.verify()[0];
    }
    remove_leftovers(disk, kCheckpoints);
    const fs::path next = save(disk, kCheckpoints, 50);
    prune_checkpoints(disk, kCheckpoints, {.keep = 1});
    for (const StorageEntry& entry : entries_in(disk, kCheckpoints))
      if (entry.name != "latest" && entry.name != next.filename())
        return concat(entry.name, " is left behind");
    return difference_from_saved(Checkpoint::open(disk, next));
  } catch (const Error& error) {
    return error.what();
  }
}

struct Sweep {
  int64_t crashes = 0, wrong = 0;
  std::string first;
};

// Cuts at each operation; for each cut, several things that the disk may have kept.
Sweep sweep(FaultStorage::Fault fault, uint64_t coins, bool to_the_end = true) {
  Sweep result;
  const int64_t operations = operations_of_a_run();
  for (int64_t at = 0; at <= operations; ++at) {
    MemoryStorage disk;
    fault.at = at;
    FaultStorage cut(with_run_directory(disk), fault);
    int64_t committed = -1;
    try {
      run(cut, committed);
    } catch (const PowerCut&) {
    }
    for (uint64_t coin = 0; coin < coins + 2; ++coin) {
      const auto unsynced = coin == 0   ? Unsynced::lost
                            : coin == 1 ? Unsynced::kept
                                        : Unsynced::mixed;
      const auto after = disk.crash(unsynced, coin);
      const std::string wrong = wrong_after_crash(*after, committed);
      ++result.crashes;
      if (wrong.empty()) continue;
      ++result.wrong;
      if (result.first.empty()) result.first = concat("cut at ", at, ", coin ", coin, ": ", wrong);
      if (!to_the_end) return result;
    }
  }
  return result;
}

TEST(Crash, NoCommittedCheckpointIsEverLost) {
  const Sweep result = sweep({.half = true}, 5);
  EXPECT_EQ(result.wrong, 0) << result.first;
  EXPECT_GT(result.crashes, 1000);
}

// The sweep can fail: a store that forgets to sync its files, or its directories, is caught.
TEST(Crash, WithoutSyncsTheSweepFails) {
  ::testing::internal::CaptureStderr();  // broken checkpoints are reported as skipped
  const Sweep files = sweep({.ignore_file_syncs = true}, 0, false);
  const Sweep directories = sweep({.ignore_directory_syncs = true}, 0, false);
  ::testing::internal::GetCapturedStderr();
  EXPECT_GT(files.wrong, 0) << files.crashes;
  EXPECT_GT(directories.wrong, 0) << directories.crashes;
}

// Every operation fails, once or from then on: a clear error, the last good checkpoint stays, no
// space is held, and a run that goes on saves its next step.
TEST(Crash, SlowAFailingDiskCostsNoCheckpoint) {
  struct Failure {
    int code;
    bool for_good;
  };
  const int64_t operations = operations_of_a_run();
  for (const auto& [code, for_good] :
       {Failure{ENOSPC, false}, Failure{EDQUOT, true}, Failure{EIO, false}, Failure{EROFS, true}})
    for (int64_t at = 0; at < operations; ++at) {
      SCOPED_TRACE(concat("operation ", at, " gives ", code, for_good ? " for good" : ""));
      MemoryStorage disk;
      FaultStorage faulty(with_run_directory(disk),
                          {.at = at, .code = code, .for_good = for_good, .half = true});
      int64_t committed = -1;
      ::testing::internal::CaptureStderr();
      for (int64_t step = 10; step <= 40; step += 10) {
        PendingCheckpoint pending;
        try {
          pending = begin_checkpoint(faulty, kCheckpoints, step);
          auto parts = write_ranks(faulty, pending.partial, step, {.ranks = 2, .block_bytes = 256});
          const std::string name =
              commit_checkpoint(faulty, pending, std::move(parts), info_of(step),
                                {{"config.json", "{}"}, {"tokenizer.json", std::string(100, 't')}})
                  .filename();
          committed = step;
          prune_checkpoints(faulty, kCheckpoints, {.keep = 2, .trusted = name});
        } catch (const StorageError& error) {
          const std::string text = error.what();
          ASSERT_EQ(error.code(), code);
          ASSERT_NE(text.find(std::strerror(code)), text.npos) << text;
          ASSERT_NE(text.find("run"), text.npos) << text;
          ASSERT_LE(std::ranges::count(text, '\n'), 2);
          if (!pending.partial.empty()) abandon_checkpoint(faulty, pending);
        }
      }
      ::testing::internal::GetCapturedStderr();
      if (!for_good) {
        ASSERT_GE(committed, 30);
      }
      for (const CheckpointEntry& entry : list_checkpoints(disk, kCheckpoints)) {
        ASSERT_EQ(entry.problem, "");
        if (code == ENOSPC || code == EDQUOT) {
          ASSERT_NE(entry.name.state, CheckpointName::State::partial) << "space is held";
        }
      }
      ASSERT_EQ(wrong_after_crash(*disk.crash(Unsynced::kept), committed), "");
    }
}

}  // namespace
}  // namespace trireme
