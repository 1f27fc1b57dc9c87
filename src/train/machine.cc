#include "train/machine.h"

#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <sys/sysinfo.h>
#include <torch/version.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace trireme {
namespace {

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name"))
      if (const size_t at = line.find(": "); at != std::string::npos) return line.substr(at + 2);
  return "unknown";
}

}  // namespace

std::vector<Fact> machine_facts() {
  struct sysinfo memory{};
  ::sysinfo(&memory);
  return {{"Trireme", TRIREME_VERSION},
          {"libtorch", TORCH_VERSION},
          {"compiler", concat("GCC-compatible ", __VERSION__)},
          {"processor", processor_name()},
          {"cores", concat(std::thread::hardware_concurrency())},
          {"memory", format_bytes(static_cast<uint64_t>(memory.totalram) * memory.mem_unit)}};
}

double measured_peak_flops(Lanes& lanes, at::ScalarType dtype) {
  constexpr int64_t kSize = 384;
  constexpr int kProducts = 30;
  std::vector<double> best(static_cast<size_t>(lanes.count()), 1e30);
  lanes.run([&](int lane) {
    if (lane < 0) return;
    const at::Tensor a = at::full({kSize, kSize}, 0.5, at::TensorOptions(dtype));
    at::Tensor c = at::full({kSize, kSize}, 0.5, at::TensorOptions(dtype));
    for (int i = 0; i < kProducts; ++i) {
      const auto start = std::chrono::steady_clock::now();
      at::mm_out(c, a, a);
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      best[static_cast<size_t>(lane)] = std::min(best[static_cast<size_t>(lane)], spent.count());
    }
  });
  double sum = 0;
  for (double seconds : best) sum += 2.0 * kSize * kSize * kSize / seconds;
  return sum;
}

}  // namespace trireme
