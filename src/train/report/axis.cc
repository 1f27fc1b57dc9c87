#include "train/report/axis.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"

namespace trireme::report {
namespace {

std::string fixed(double value, int decimals) {
  char text[400];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

// "2.5e-4": no plus and no zeros that say nothing.
std::string scientific(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*e", decimals, value);
  std::string mantissa = text;
  const size_t e = mantissa.find('e');
  const int exponent = std::atoi(mantissa.c_str() + e + 1);
  mantissa.resize(e);
  if (decimals > 0) {
    mantissa.erase(mantissa.find_last_not_of('0') + 1);
    if (mantissa.back() == '.') mantissa.pop_back();
  }
  return mantissa + "e" + std::to_string(exponent);
}

// "12,345"
std::string whole(double value) {
  const std::string digits = format_count(static_cast<uint64_t>(std::llround(std::abs(value))));
  return value < 0 ? "−" + digits : digits;
}

int exponent_of(double value) {
  // A hair above, so that 1000 written as 999.9999999999999 counts as 10^3.
  return static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9));
}

// All ticks of an axis are written alike: `largest` chooses the unit, `step` the decimals.
std::string tick_text(double value, double step, double largest) {
  if (value == 0) return "0";
  const int step_exponent = exponent_of(step);
  if (largest < 1e-2 || largest >= 1e13)
    return scientific(value, std::max(0, exponent_of(value) - step_exponent));
  static constexpr struct {
    double from, unit;
    const char* suffix;
  } kUnits[] = {{1e10, 1e9, "G"}, {1e7, 1e6, "M"}, {1e4, 1e3, "k"}, {0, 1, ""}};
  const auto& unit = *std::ranges::find_if(kUnits, [&](auto& u) { return largest >= u.from; });
  const double in_unit = step / unit.unit;
  if (unit.unit == 1 && step >= 1) return whole(value);
  return fixed(value / unit.unit, std::max(0, -exponent_of(in_unit))) + unit.suffix;
}

std::vector<Tick> linear_ticks(const Axis& axis, int wanted) {
  const double span = axis.high - axis.low;
  const double rough = span / std::max(1, wanted);
  const double power = std::pow(10, exponent_of(rough));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (rough <= factor * power * 1.0001) step = factor * power;
  std::vector<Tick> out;
  const double largest = std::max(std::abs(axis.low), std::abs(axis.high));
  // Multiples are counted, not added up, so that no error gathers; a hair of slack for the ends.
  for (double n = std::ceil(axis.low / step - 1e-6); n * step <= axis.high + 1e-6 * step; ++n)
    out.push_back({n * step, tick_text(n * step, step, largest)});
  return out;
}

std::vector<Tick> logarithmic_ticks(const Axis& axis, int wanted) {
  const double decades = std::log10(axis.high / axis.low);
  if (decades < 1) return linear_ticks(axis, wanted);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / wanted)));
  const bool room = decades * 3 <= wanted + 3;
  std::vector<Tick> out;
  for (int e = exponent_of(axis.low); e <= exponent_of(axis.high); ++e) {
    if (e % stride != 0) continue;
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10, e);
      const bool inside = value >= axis.low * 0.9999 && value <= axis.high * 1.0001;
      if (inside && (factor == 1 || room))
        out.push_back({value, tick_text(value, value, std::max(value, 1e-2))});
    }
  }
  return out;
}

}  // namespace

double Axis::place(double value) const {
  if (!logarithmic) return (value - low) / (high - low);
  return value > 0 ? std::log(value / low) / std::log(high / low) : std::nan("");
}

std::vector<Tick> ticks(const Axis& axis, int wanted) {
  return axis.logarithmic ? logarithmic_ticks(axis, wanted) : linear_ticks(axis, wanted);
}

std::string significant(double value, int digits) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "∞" : "−∞";
  if (value == 0) return "0";
  const int exponent = exponent_of(value);
  if (exponent >= 15 || exponent < -2) return scientific(value, std::min(digits, 3) - 1);
  if (exponent + 1 < digits) return fixed(value, digits - 1 - exponent);
  return whole(value);
}

std::string percent(double fraction) {
  const double value = 100 * fraction;
  if (!std::isfinite(value)) return significant(value);
  return fixed(value, std::abs(value) >= 0.1 || value == 0 ? 1 : 2) + " %";
}

}  // namespace trireme::report
