#include <torch/version.h>

#include <cstdio>

#include "cli/verbs.h"

namespace trireme {

Run declare_version(CLI::App&) {
  return [] {
    std::printf("trireme %s\nlibtorch %s\ncompiler %s\n", TRIREME_VERSION, TORCH_VERSION,
                __VERSION__);
    return 0;
  };
}

}  // namespace trireme
