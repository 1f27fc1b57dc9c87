// Axes: where a value lies, which ticks a person wants to see, and how numbers are written.
#pragma once

#include <string>
#include <vector>

namespace trireme::report {

// Maps [low, high] to [0, 1]. REQUIRES: low < high, and 0 < low where it is logarithmic.
struct Axis {
  double low = 0, high = 1;
  bool logarithmic = false;

  // Outside of [0, 1] for values outside of the range; NaN for what a logarithm does not take.
  double place(double value) const;
};

struct Tick {
  double value = 0;
  std::string text;
};

// About `wanted` ticks inside the axis: 1, 2 or 5 times a power of ten, written alike: "0.25",
// "15k", "2e-4". A logarithmic axis that spans a decade has them at powers of ten (and at 2 and 5
// times those where there is room); a narrower one has those of a linear axis.
std::vector<Tick> ticks(const Axis& axis, int wanted);

// A number to read by itself, with about `digits` significant digits: "3.214", "0.7712", "12,345",
// "1.2e-5", "NaN".
std::string significant(double value, int digits = 4);

// 0.613 -> "61.3 %", 0.00012 -> "0.01 %".
std::string percent(double fraction);

}  // namespace trireme::report
