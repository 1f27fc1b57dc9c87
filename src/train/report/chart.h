// A chart of curves over steps: inline SVG for the curves, HTML for every word around them.
//
// The SVG is stretched to the width of the page and its strokes are not; words lie on top at
// percentages. So the same markup is sharp on a wide screen and readable on a phone, and needs no
// script. A chart may have several views of the same curves (logarithmic, the last half); they are
// all in the page and radio buttons choose among them by CSS alone. The script of assets.h adds a
// crosshair that reads values, from numbers that go with the chart.
#pragma once

#include <string>
#include <vector>

#include "train/report/html.h"
#include "train/report/series.h"

namespace trireme::report {

struct Line {
  enum class Style { faint, bold, dots };  // dots: few points, each to be seen

  std::string name;
  Style style = Style::bold;
  int color = 0;  // 0 … 3, the colours of the style sheet
  Points points = {};
  Points readings = {};  // what the crosshair reads; empty: the points, some hundreds of them
};

struct View {
  std::string name;  // "linear"
  bool log_x = false, log_y = false;
  double from = 0;  // the part of the steps that is left out at the beginning, 0 … 1
};

struct Mark {
  double x = 0;
  bool alarm = false;  // an incident rather than a resume
};

struct Chart {
  std::string id;           // unique in the page; letters and digits
  std::string title, unit;  // "Loss", "nats per …"; unit may be empty
  int height_px = 170;
  bool from_zero = false;              // the y axis of linear views begins at 0
  double steps = 1;                    // the x axis is 0 … steps, the same in all charts of a page
  std::vector<Line> lines = {};        // later ones are drawn over earlier ones
  std::vector<View> views = {View{}};  // the first one is shown at first; at least one
  std::vector<Mark> marks = {};
  std::string note = {};  // a sentence below
};

// Empty when no line has a point that can be drawn.
Html draw(const Chart& chart);

}  // namespace trireme::report
