// Curves as they are drawn: smoothed, thinned to what a screen can show, and framed.
#pragma once

#include <cstdint>
#include <vector>

#include "train/report/axis.h"

namespace trireme::report {

struct Point {
  double x = 0, y = 0;  // y may be no finite number: the curve has a gap there
};
using Points = std::vector<Point>;  // x does not decrease

// How many neighbours on each side smoothed() takes where there are enough: about a sixtieth of the
// curve. 0 where the curve is too short to be worth it.
int64_t smoothing_reach(size_t points);

// The middle of each point's neighbours, their mean or median: `reach` on each side, but at most
// half of those before it, so that the first steep fall stays, and only those that there are at
// the end. Taken at places so close that neighbours share most of their points, the last point
// among them: some hundreds of places however long the curve is. Values that are not finite are
// left out.
enum class Middle { mean, median };
struct Smoothed {
  Points raw, middle;  // at the same places
};
Smoothed smoothed(const Points& points, int64_t reach, Middle middle);

// The points that draw the same picture at a width of `columns`: the lowest and the highest of each
// column in their order, the first and the last of all, and one point for the gaps of a column.
// Points outside of the axis are dropped.
Points thinned(const Points& points, const Axis& x, int columns);

// At most `count` of the points, at even places, the last one among them.
Points sampled(const Points& points, size_t count);

// The value below which the `fraction` lies, of the finite ones (nearest rank); NaN if there are
// none. Reorders `values`.
double quantile(std::vector<double>& values, double fraction);

}  // namespace trireme::report
