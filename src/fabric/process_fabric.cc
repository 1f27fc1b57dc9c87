#include "fabric/process_fabric.h"

#include <ATen/Parallel.h>
#include <unistd.h>

#include <exception>
#include <mutex>
#include <thread>

#include "fabric/shared_group.h"
#include "fabric/shared_mover.h"

namespace trireme {
namespace {

class SharedCommunicator : public Communicator {
 public:
  SharedCommunicator(const std::string& name, std::unique_ptr<SharedGroup> group,
                     std::chrono::milliseconds timeout)
      : Communicator(name, group->rank(), group->members(), timeout), group_(std::move(group)) {}
  ~SharedCommunicator() override { finish(); }

 private:
  void execute(const Call& call) override {
    group_->collective(call.operation, call.sequence, call.timeout);
  }
  std::shared_ptr<Pending::State> transfer(Call call) override {
    if (!mover_) mover_ = std::make_unique<SharedMover>(*group_);
    return mover_->begin(std::move(call.operation), call.sequence, call.timeout);
  }

  std::unique_ptr<SharedGroup> group_;
  std::unique_ptr<SharedMover> mover_;  // made by the first transfer
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

}  // namespace

ProcessFabric::ProcessFabric(SharedRegion& region, const FabricOptions& options)
    : Fabric(region.rank(), region.ranks()), region_(region), options_(options) {}

ProcessFabric::~ProcessFabric() { drop_groups(); }

std::unique_ptr<Communicator> ProcessFabric::make_group(const std::string& name,
                                                        const std::string& key,
                                                        const std::vector<int>& members,
                                                        uint64_t build) {
  return std::make_unique<SharedCommunicator>(
      name, std::make_unique<SharedGroup>(region_, name, key, members, build), options_.timeout);
}

void run_ranks_in_shared_memory(int ranks, const std::function<void(Fabric&)>& rank_main,
                                const FabricOptions& options) {
  struct Descriptor {
    int fd;
    ~Descriptor() { ::close(fd); }
  } const memory{SharedRegion::make(ranks, false)};
  std::mutex mutex;
  std::exception_ptr first_error;
  const int caller_threads = at::get_num_threads();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);
      SharedRegion region(memory.fd, rank);
      ProcessFabric fabric(region, options);
      try {
        rank_main(fabric);
        fabric.drop_groups();
        region.leave();
      } catch (...) {
        const std::exception_ptr error = std::current_exception();
        const std::lock_guard lock(mutex);
        if (region.fail({.rank = rank, .text = message_of(error)})) first_error = error;
      }
    });
  for (std::thread& thread : threads) thread.join();
  at::set_num_threads(caller_threads);
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace trireme
