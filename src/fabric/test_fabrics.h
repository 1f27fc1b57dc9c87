// Test support: the same test on every fabric whose ranks can be threads of the test.
#pragma once

#include <gtest/gtest.h>

#include "fabric/process_fabric.h"
#include "fabric/thread_fabric.h"

namespace trireme {

enum class FabricKind { thread, process };

// run_ranks() of the fabric that the test is run on.
class OnEveryFabric : public testing::TestWithParam<FabricKind> {
 protected:
  static void run_ranks(int ranks, const std::function<void(Fabric&)>& rank_main,
                        const FabricOptions& options = {}) {
    if (GetParam() == FabricKind::thread) trireme::run_ranks(ranks, rank_main, options);
    else run_ranks_in_shared_memory(ranks, rank_main, options);
  }
};

inline std::string name_of_fabric(const testing::TestParamInfo<FabricKind>& info) {
  return info.param == FabricKind::thread ? "thread" : "process";
}

#define TRIREME_ON_EVERY_FABRIC(suite) \
  INSTANTIATE_TEST_SUITE_P(            \
      Fabrics, suite, testing::Values(FabricKind::thread, FabricKind::process), name_of_fabric)

}  // namespace trireme
