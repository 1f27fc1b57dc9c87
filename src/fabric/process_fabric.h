// Ranks that are processes of one machine and share memory.
//
// Whoever starts the processes hands each the region's descriptor (cli/launcher.h). Every operation
// gives the bits of the thread fabric, and every failure its words. A process that dies in any way
// is missed within a fraction of a second.
#pragma once

#include <functional>
#include <memory>

#include "fabric/fabric.h"
#include "fabric/shared_region.h"

namespace trireme {

class ProcessFabric : public Fabric {
 public:
  // The region outlives the fabric.
  ProcessFabric(SharedRegion& region, const FabricOptions& options = {});
  ~ProcessFabric() override;

  using Fabric::drop_groups;

 private:
  std::unique_ptr<Communicator> make_group(const std::string& name, const std::string& key,
                                           const std::vector<int>& members,
                                           uint64_t build) override;

  SharedRegion& region_;
  const FabricOptions options_;
};

// run_ranks() over shared memory: the ranks are threads that know each other by nothing but the
// region. For tests and benches.
void run_ranks_in_shared_memory(int ranks, const std::function<void(Fabric&)>& rank_main,
                                const FabricOptions& options = {});

}  // namespace trireme
