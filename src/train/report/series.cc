#include "train/report/series.h"

#include <algorithm>
#include <cmath>

namespace trireme::report {
namespace {

constexpr int64_t kWorthSmoothing = 20;  // points

// Of the finite values. Summed afresh for each window: a difference of running sums would lose
// every digit behind one huge value.
double mean(const std::vector<double>& values) {
  double sum = 0, count = 0;
  for (const double value : values)
    if (std::isfinite(value)) sum += value, ++count;
  return count > 0 ? sum / count : std::nan("");
}

}  // namespace

int64_t smoothing_reach(size_t points) {
  const auto n = static_cast<int64_t>(points);
  return n < kWorthSmoothing ? 0 : std::max<int64_t>(2, n / 60);
}

Smoothed smoothed(const Points& points, int64_t reach, Middle middle) {
  const auto n = static_cast<int64_t>(points.size());
  Smoothed out;
  std::vector<double> values;
  for (int64_t i = 0; i < n;) {
    const int64_t near = std::min(reach, i / 2);
    values.clear();
    for (int64_t j = i - near; j < std::min(n, i + near + 1); ++j)
      values.push_back(points[static_cast<size_t>(j)].y);
    const Point& point = points[static_cast<size_t>(i)];
    out.raw.push_back(point);
    out.middle.push_back({point.x, middle == Middle::mean ? mean(values) : quantile(values, 0.5)});
    const int64_t next = i + std::max<int64_t>(1, near / 8);
    i = i < n - 1 ? std::min(next, n - 1) : n;
  }
  return out;
}

Points thinned(const Points& points, const Axis& x, int columns) {
  Points out;
  Point low, high, gap;
  int64_t column = -1;
  bool any = false, gapped = false;
  const auto flush = [&] {
    if (any) out.push_back(low.x <= high.x ? low : high);
    if (any && low.x != high.x) out.push_back(low.x <= high.x ? high : low);
    if (gapped) out.push_back(gap);
    any = gapped = false;
  };
  for (size_t i = 0; i < points.size(); ++i) {
    const Point& point = points[i];
    const double place = x.place(point.x);
    if (!(place >= -1e-9 && place <= 1 + 1e-9)) continue;
    // The first and the last point have columns of their own.
    const bool end = i == 0 || i + 1 == points.size();
    const auto here = end ? -2 - static_cast<int64_t>(i) : static_cast<int64_t>(place * columns);
    if (here != column) flush(), column = here;
    if (!std::isfinite(point.y)) {
      gap = point, gapped = true;
      continue;
    }
    if (!any || point.y < low.y) low = point;
    if (!any || point.y > high.y) high = point;
    any = true;
  }
  flush();
  return out;
}

Points sampled(const Points& points, size_t count) {
  if (points.size() <= count) return points;
  Points out;
  for (size_t i = 1; i <= count; ++i) out.push_back(points[i * points.size() / count - 1]);
  return out;
}

double quantile(std::vector<double>& values, double fraction) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::nan("");
  const auto rank = static_cast<size_t>(std::ceil(fraction * static_cast<double>(values.size())));
  const auto place = values.begin() + static_cast<int64_t>(rank > 0 ? rank - 1 : 0);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace trireme::report
