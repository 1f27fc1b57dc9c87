// Timing of runs that take turns, on the calling thread's CPU time: what other programs take from
// the processor does not count, what they take from caches and clock does, and from both sides
// alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace trireme::bench {

using Run = std::function<void()>;

struct Timing {
  double seconds;  // of one run: the median of the rounds
  double spread;   // half the distance of the quartiles, as a share of the median
};

// Each run in turn, `rounds` times over; in a round it is repeated for some `round_seconds`.
std::vector<Timing> time_in_turn(const std::vector<Run>& runs, int rounds, double round_seconds);

double median(std::vector<double> values);

std::string processor();  // as the system names it

}  // namespace trireme::bench
