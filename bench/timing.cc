#include "timing.h"

#include <time.h>

#include <algorithm>
#include <fstream>

namespace trireme::bench {
namespace {

double cpu_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double seconds_of(const Run& run, int times) {
  const double start = cpu_seconds();
  for (int i = 0; i < times; ++i) run();
  return (cpu_seconds() - start) / times;
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::vector<Timing> time_in_turn(const std::vector<Run>& runs, int rounds, double round_seconds) {
  std::vector<int> times;
  for (const Run& run : runs) {
    run();
    const double once = std::max(1e-7, seconds_of(run, 1));
    times.push_back(std::clamp(static_cast<int>(round_seconds / once), 1, 100'000));
  }
  std::vector<std::vector<double>> seconds(runs.size());
  for (int round = 0; round < rounds; ++round)
    for (size_t k = 0; k < runs.size(); ++k) seconds[k].push_back(seconds_of(runs[k], times[k]));
  std::vector<Timing> timings;
  for (auto& s : seconds) {
    std::sort(s.begin(), s.end());
    const double middle = s[s.size() / 2];
    timings.push_back({middle, (s[s.size() * 3 / 4] - s[s.size() / 4]) / 2 / middle});
  }
  return timings;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

}  // namespace trireme::bench
