#include "fabric/thread_fabric.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "fabric/thread_group.h"

namespace trireme {
namespace {

// What the ranks of one run share.
class ThreadWorld {
 public:
  // The group of these ranks, made by the first of them that asks. FabricError if ranks ask in
  // different orders.
  std::shared_ptr<ThreadGroup> group(const std::string& name, const std::string& key,
                                     const std::vector<int>& members, int rank, uint64_t build) {
    const std::lock_guard lock(mutex_);
    if (build == builds_.size()) builds_.emplace_back(key, rank);
    const auto& [first_key, first_rank] = builds_.at(build);
    if (key != first_key)
      throw FabricError(
          name, "group", build, {},
          concat("group #", build, ": rank ", first_rank, " makes ", first_key, ", rank ", rank,
                 " makes ", key, ": every rank makes the same groups in the same order"));
    std::shared_ptr<ThreadGroup>& group = groups_[{key, members}];
    if (!group) {
      group = std::make_shared<ThreadGroup>(name, members);
      if (error_) group->abort(failed_rank_, reason_);
      for (int gone : left_) group->leave(gone);
    }
    return group;
  }

  void abort(int rank, const std::string& reason, std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = std::move(error);
    failed_rank_ = rank;
    reason_ = reason;
    for (const auto& [key, group] : groups_) group->abort(rank, reason);
  }

  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    left_.push_back(rank);
    for (const auto& [key, group] : groups_) group->leave(rank);
  }

  // After all threads have ended.
  std::exception_ptr first_error() const { return error_; }

 private:
  std::mutex mutex_;  // guards everything below; taken before a group's
  std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<ThreadGroup>> groups_;
  std::vector<std::pair<std::string, int>> builds_;  // the order of groups, and who was first
  std::vector<int> left_;
  std::exception_ptr error_;
  int failed_rank_ = -1;
  std::string reason_;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(const std::string& name, int rank, std::shared_ptr<ThreadGroup> group,
                     std::chrono::milliseconds timeout)
      : Communicator(name, rank, group->members(), timeout), group_(std::move(group)) {}
  ~ThreadCommunicator() override { finish(); }

 private:
  void execute(const Call& call) override {
    group_->collective(rank(), call.operation, call.sequence, call.timeout);
  }
  std::shared_ptr<Pending::State> transfer(Call call) override {
    return group_->transfer(rank(), std::move(call.operation), call.sequence, call.timeout);
  }

  std::shared_ptr<ThreadGroup> group_;  // shared by its members; the last one frees it
};

class ThreadFabric : public Fabric {
 public:
  ThreadFabric(ThreadWorld& world, int rank, int ranks, const FabricOptions& options)
      : Fabric(rank, ranks), world_(world), options_(options) {}
  ~ThreadFabric() override { drop_groups(); }

  using Fabric::drop_groups;

 private:
  std::unique_ptr<Communicator> make_group(const std::string& name, const std::string& key,
                                           const std::vector<int>& members,
                                           uint64_t build) override {
    const auto group_rank = std::ranges::find(members, rank()) - members.begin();
    return std::make_unique<ThreadCommunicator>(name, static_cast<int>(group_rank),
                                                world_.group(name, key, members, rank(), build),
                                                options_.timeout);
  }

  ThreadWorld& world_;
  const FabricOptions options_;
};

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

void run_rank(ThreadWorld& world, int rank, int ranks,
              const std::function<void(Fabric&)>& rank_main, const FabricOptions& options) {
  ThreadFabric fabric(world, rank, ranks, options);
  try {
    at::set_num_threads(1);
    rank_main(fabric);
    fabric.drop_groups();  // what was started is finished before this rank is gone
    world.leave(rank);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    world.abort(rank, message_of(error), error);
  }
}

}  // namespace

void run_ranks(int ranks, const std::function<void(Fabric&)>& rank_main,
               const FabricOptions& options) {
  TRIREME_CHECK(ranks >= 1, "a run has at least one rank, got ", ranks);
  const int caller_threads = at::get_num_threads();
  ThreadWorld world;
  std::vector<std::thread> threads;
  try {
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] { run_rank(world, rank, ranks, rank_main, options); });
  } catch (const std::system_error& error) {
    const auto rank = static_cast<int>(threads.size());
    world.abort(rank, concat("no thread for it: ", error.what()), std::current_exception());
  }
  for (std::thread& thread : threads) thread.join();
  at::set_num_threads(caller_threads);
  if (world.first_error()) std::rethrow_exception(world.first_error());
}

}  // namespace trireme
