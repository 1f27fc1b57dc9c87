#include "train/report/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace trireme::report {
namespace {

constexpr int kWidth = 1000;       // of the SVG's own coordinates, whatever the page's
constexpr int kColumns = 500;      // that curves are thinned to: wider than a phone, finer than
                                   // the eye on a wide screen
constexpr size_t kReadings = 500;  // of a line that brings none
constexpr double kLabelPx = 16;    // between two end labels, at a 12 px font
constexpr size_t kManyDots = 25;   // from here on dots are small
constexpr size_t kEnough = 200;    // points, for a quantile to tell outliers

struct Frame {
  Axis x, y;
  int height_px = 0;

  double left(double value) const { return kWidth * x.place(value); }
  double top(double value) const {
    return std::clamp(height_px * (1 - y.place(value)), 0.0, static_cast<double>(height_px));
  }
  bool shows(const Point& point) const {
    return std::isfinite(point.y) && (!y.logarithmic || point.y > 0) && x.place(point.x) >= -1e-9 &&
           x.place(point.x) <= 1 + 1e-9;
  }
};

bool is_large(const Chart& chart) { return chart.height_px > 200; }

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) { low = std::min(low, value), high = std::max(high, value); }
  bool empty() const { return low > high; }
};

Axis x_axis(const Chart& chart, const View& view) {
  Axis axis{.low = view.log_x ? 1 : view.from * chart.steps,
            .high = chart.steps,
            .logarithmic = view.log_x};
  if (!(axis.high > axis.low)) axis.high = axis.low + 1;
  return axis;
}

// The values that the frame has to hold: all, but of a long line not the outermost thousandths, so
// that one spike does not press the rest flat.
Range y_range(const Chart& chart, const Frame& frame) {
  Range range;
  for (const Line& line : chart.lines) {
    std::vector<double> values;
    for (const Point& point : line.points)
      if (frame.shows(point)) values.push_back(point.y);
    if (values.empty()) continue;
    const double tail = line.style == Line::Style::dots || values.size() < kEnough ? 0
                        : line.style == Line::Style::bold                          ? 0.005
                                                                                   : 0.001;
    range.add(quantile(values, tail));
    range.add(quantile(values, 1 - tail));
  }
  return range;
}

Axis y_axis(const Chart& chart, const View& view, const Range& range) {
  Axis axis{.low = range.low, .high = range.high, .logarithmic = view.log_y};
  if (chart.from_zero && !view.log_y && axis.low > 0) axis.low = 0;
  if (axis.high - axis.low <= 1e-9 * std::abs(axis.high)) {  // a constant: in the middle
    const double room = axis.high == 0 ? 1 : 0.1 * std::abs(axis.high);
    axis.low -= room, axis.high += room;
    return axis;
  }
  if (view.log_y) {
    const double room = std::pow(axis.high / axis.low, 0.05);
    axis.low /= room, axis.high *= room;
  } else {
    const double room = 0.06 * (axis.high - axis.low);
    if (axis.low != 0 || !chart.from_zero) axis.low -= room;
    axis.high += room;
  }
  return axis;
}

void move_to(Html& out, Literal verb, double left, double top) {
  out.add(verb).number(left, 1).add(" ").number(top, 1);
}

// The `d` of the path through the points, broken where there is a gap; a point between two gaps is
// a dot.
Html path_through(const Points& points, const Frame& frame) {
  Html d;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!frame.shows(points[i])) continue;
    const bool begins = i == 0 || !frame.shows(points[i - 1]);
    const bool ends = i + 1 == points.size() || !frame.shows(points[i + 1]);
    if (begins) move_to(d, "M", frame.left(points[i].x), frame.top(points[i].y));
    else move_to(d, " ", frame.left(points[i].x), frame.top(points[i].y));
    if (begins && ends) d.add("h0");
  }
  return d;
}

Html dots_at(const Points& points, const Frame& frame) {
  Html d;
  for (const Point& point : points) {
    if (!frame.shows(point)) continue;
    move_to(d, "M", frame.left(point.x), frame.top(point.y));
    d.add("h0");
  }
  return d;
}

void draw_line(Html& out, const Line& line, const Frame& frame) {
  const Points points =
      line.style == Line::Style::dots ? line.points : thinned(line.points, frame.x, kColumns);
  out.add("<path class=\"c").number(line.color);
  if (line.style == Line::Style::faint) out.add(" faint");
  if (line.style == Line::Style::dots) out.add(" thin");
  out.add("\" d=\"").add(path_through(points, frame)).add("\"/>");
  if (line.style != Line::Style::dots) return;
  out.add("<path class=\"c").number(line.color).add(" dots");
  if (points.size() >= kManyDots) out.add(" many");
  out.add("\" d=\"").add(dots_at(points, frame)).add("\"/>");
}

struct EndLabel {
  double left_percent, top_px;
  std::string text;
  int color;
  bool in_margin;  // or at a point inside the frame, where the line ends early
};

void push_apart(std::vector<EndLabel>& labels, double height_px) {
  std::ranges::stable_sort(labels, {}, &EndLabel::top_px);
  for (size_t i = 1; i < labels.size(); ++i)
    labels[i].top_px = std::max(labels[i].top_px, labels[i - 1].top_px + kLabelPx);
  // Those that were pushed below the frame push back.
  double limit = height_px;
  for (size_t i = labels.size(); i-- > 0; limit = labels[i].top_px - kLabelPx)
    labels[i].top_px = std::min(labels[i].top_px, limit);
}

// The last value of each line that is not faint: beside the frame where the line reaches its end,
// else above the last point.
std::vector<EndLabel> end_labels(const Chart& chart, const Frame& frame) {
  std::vector<EndLabel> beside, inside;
  for (const Line& line : chart.lines) {
    if (line.style == Line::Style::faint) continue;
    const auto last = std::find_if(line.points.rbegin(), line.points.rend(),
                                   [&](const Point& point) { return frame.shows(point); });
    if (last == line.points.rend()) continue;
    const double place = frame.x.place(last->x);
    const bool reaches = place > 0.97;
    (reaches ? beside : inside)
        .push_back({.left_percent = 100 * place,
                    .top_px = frame.top(last->y),
                    .text = significant(last->y),
                    .color = line.color,
                    .in_margin = reaches});
  }
  push_apart(beside, frame.height_px);
  beside.insert(beside.end(), inside.begin(), inside.end());
  return beside;
}

std::string spoken(const Chart& chart) {
  std::string out = chart.title + " over steps.";
  for (const Line& line : chart.lines) {
    if (line.style == Line::Style::faint || line.points.empty()) continue;
    const Point &first = line.points.front(), &last = line.points.back();
    out += concat(" ", line.name, ": ", significant(first.y), " at step ", significant(first.x, 15),
                  ", ", significant(last.y), " at step ", significant(last.x, 15), ".");
  }
  return out;
}

void draw_svg(Html& out, const Chart& chart, const Frame& frame, const std::vector<Tick>& y_ticks) {
  out.add("<svg viewBox=\"0 0 ").number(kWidth).add(" ").number(frame.height_px);
  out.add("\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"").text(spoken(chart));
  out.add("\"><path class=\"grid\" d=\"");
  for (const Tick& tick : y_ticks) {
    move_to(out, "M", 0, frame.top(tick.value));
    out.add("H").number(kWidth);
  }
  out.add("\"/><path class=\"base\" d=\"");
  move_to(out, "M", 0, frame.height_px);
  out.add("H").number(kWidth).add("\"/>");
  for (const Mark& mark : chart.marks) {
    const double place = frame.x.place(mark.x);
    if (!(place >= 0 && place <= 1)) continue;
    if (mark.alarm) out.add("<path class=\"mark alarm\" d=\"");
    else out.add("<path class=\"mark\" d=\"");
    move_to(out, "M", kWidth * place, 0);
    out.add("V").number(frame.height_px).add("\"/>");
  }
  for (const Line& line : chart.lines) draw_line(out, line, frame);
  out.add("</svg>");
}

// Do the labels have room on the narrowest phone, where a plot is some 215 px wide?
bool fit_on_a_phone(const std::vector<Tick>& ticks) {
  size_t px = 0;
  for (const Tick& tick : ticks) px += 7 * tick.text.size() + 12;  // at 12 px, and a gap
  return px <= 215;
}

void draw_x_ticks(Html& out, const std::vector<Tick>& x_ticks, const Axis& x) {
  const bool all = fit_on_a_phone(x_ticks);
  for (size_t i = 0; i < x_ticks.size(); ++i) {
    if (all || i % 2 == 0) out.add("<span class=\"xt\" style=\"left:");
    else out.add("<span class=\"xt odd\" style=\"left:");
    out.number(100 * x.place(x_ticks[i].value), 2).add("%\">");
    out.text(x_ticks[i].text).add("</span>");
  }
  // The axis's name stands beside the first label, which may reach into the margin.
  const bool aside = !x_ticks.empty() && x.place(x_ticks[0].value) < 0.05;
  const double half = aside ? 0.5 * static_cast<double>(x_ticks[0].text.size()) : 0;
  out.add("<span class=\"xname\" style=\"margin-right:calc(6px + ").number(half, 1);
  out.add("ch)\">step</span>");
}

void draw_y_ticks(Html& out, const std::vector<Tick>& y_ticks, const Frame& frame) {
  for (const Tick& tick : y_ticks) {
    out.add("<span class=\"yt\" style=\"top:").number(frame.top(tick.value), 1).add("px\">");
    out.text(tick.text).add("</span>");
  }
}

void draw_end_labels(Html& out, const std::vector<EndLabel>& labels) {
  for (const EndLabel& label : labels) {
    if (label.in_margin) out.add("<span class=\"end c");
    else out.add("<span class=\"end inside c");
    out.number(label.color).add("\" style=\"top:").number(label.top_px, 1).add("px;left:");
    out.number(label.left_percent, 2).add("%\">").text(label.text).add("</span>");
  }
}

// Says which values the frame leaves out, so that a cut spike is not taken for a small one.
Html note_on_outliers(const Chart& chart, const Frame& frame) {
  int64_t count = 0;
  double furthest = frame.y.high;
  for (const Line& line : chart.lines)
    for (const Point& point : line.points) {
      if (line.style != Line::Style::faint || !frame.shows(point)) continue;
      const double place = frame.y.place(point.y);
      if (place >= 0 && place <= 1) continue;
      ++count;
      if (std::abs(point.y) > std::abs(furthest)) furthest = point.y;
    }
  Html out;
  if (count == 0) return out;
  out.add("<p class=\"note\">").number(count);
  if (count == 1) out.add(" value lies beyond the frame");
  else out.add(" values lie beyond the frame");
  if (furthest > frame.y.high) out.add(", up to ").text(significant(furthest));
  return out.add(".</p>");
}

// Empty when nothing can be shown in this view.
Html draw_view(const Chart& chart, const View& view, size_t number) {
  Frame frame{.x = x_axis(chart, view), .y = {}, .height_px = chart.height_px};
  frame.y.logarithmic = view.log_y;
  const Range range = y_range(chart, frame);
  if (range.empty()) return {};
  frame.y = y_axis(chart, view, range);
  const auto x_ticks = ticks(frame.x, is_large(chart) ? 8 : 5);
  const auto y_ticks = ticks(frame.y, is_large(chart) ? 6 : 4);
  const auto labels = end_labels(chart, frame);
  size_t left = 4, right = 2;  // of the margins, in characters
  for (const Tick& tick : y_ticks) left = std::max(left, tick.text.size());
  for (const EndLabel& label : labels)
    if (label.in_margin) right = std::max(right, label.text.size());
  char axes[192];  // for the script
  std::snprintf(axes, sizeof axes, "%.9g %.9g %d %.9g %.9g %d", frame.x.low, frame.x.high,
                frame.x.logarithmic, frame.y.low, frame.y.high, frame.y.logarithmic);

  Html out;
  out.add("<div class=\"view v").number(number).add("\"><div class=\"plot\" tabindex=\"0\" ");
  out.add("style=\"--h:").number(frame.height_px).add("px;--left:").number(left);
  out.add("ch;--right:").number(right).add("ch\" data-axes=\"").text(axes).add("\">");
  draw_svg(out, chart, frame, y_ticks);
  draw_y_ticks(out, y_ticks, frame);
  draw_x_ticks(out, x_ticks, frame.x);
  draw_end_labels(out, labels);
  out.add("</div>").add(note_on_outliers(chart, frame)).add("</div>");
  return out;
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[40];
  // Steps are whole, and every digit of them counts.
  std::snprintf(text, sizeof text, value == std::floor(value) ? "%.15g" : "%.5g", value);
  return text;
}

// {"lines": [{"name", "color", "faint", "x": […], "y": […]}, …]} for the crosshair.
Html readings(const Chart& chart) {
  std::string json = "{\"lines\":[";
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    const Line& line = chart.lines[i];
    const Points points = sampled(line.readings.empty() ? line.points : line.readings,
                                  line.readings.empty() ? kReadings : line.readings.size());
    std::string x, y;
    for (const Point& point : points) {
      x += (x.empty() ? "" : ",") + json_number(point.x);
      y += (y.empty() ? "" : ",") + json_number(point.y);
    }
    json += concat(
        i ? "," : "", "{\"name\":",
        nlohmann::json(line.name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
        ",\"color\":", line.color, ",\"x\":[", x, "],\"y\":[", y, "]}");
  }
  return json_data(json + "]}");
}

Html caption(const Chart& chart, const std::vector<std::string>& views) {
  Html out;
  out.add("<figcaption><span class=\"name\">").text(chart.title);
  if (!chart.unit.empty()) out.add(" <small>").text(chart.unit).add("</small>");
  out.add("</span>");
  if (chart.lines.size() > 1 || !chart.marks.empty()) {
    out.add("<span class=\"legend\">");
    for (const Line& line : chart.lines) {
      // In a small chart the words are dearer than the hint that the pale line is what was
      // smoothed.
      if (line.style == Line::Style::faint && !is_large(chart)) continue;
      out.add("<span class=\"key c").number(line.color);
      if (line.style == Line::Style::faint) out.add(" faint");
      if (line.style == Line::Style::dots) out.add(" dots");
      out.add("\">").text(line.name).add("</span>");
    }
    const auto alarm = [](const Mark& mark) { return mark.alarm; };
    if (!std::ranges::all_of(chart.marks, alarm))
      out.add("<span class=\"key mark\">resumed</span>");
    if (std::ranges::any_of(chart.marks, alarm))
      out.add("<span class=\"key mark alarm\">incident</span>");
    out.add("</span>");
  }
  if (views.size() > 1) {
    out.add("<span class=\"switch\">");
    for (size_t i = 0; i < views.size(); ++i)
      out.add("<label class=\"l")
          .number(i)
          .add("\" for=\"")
          .text(chart.id)
          .add("-")
          .number(i)
          .add("\">")
          .text(views[i])
          .add("</label>");
    out.add("</span>");
  }
  out.add("</figcaption>");
  return out;
}

}  // namespace

Html draw(const Chart& chart) {
  Html views;
  std::vector<std::string> names;
  for (const View& view : chart.views) {
    const Html drawn = draw_view(chart, view, names.size());
    if (drawn.empty()) continue;
    views.add(drawn);
    names.push_back(view.name);
  }
  Html out;
  if (views.empty()) return out;
  out.add("<figure class=\"chart\" id=\"").text(chart.id).add("\">");
  for (size_t i = 0; names.size() > 1 && i < names.size(); ++i) {
    out.add("<input type=\"radio\" class=\"r").number(i).add("\" name=\"").text(chart.id);
    out.add("-view\" id=\"").text(chart.id).add("-").number(i);
    if (i == 0) out.add("\" checked>");
    else out.add("\">");
  }
  out.add(caption(chart, names)).add(views);
  if (!chart.note.empty()) out.add("<p class=\"note\">").text(chart.note).add("</p>");
  out.add(readings(chart)).add("</figure>");
  return out;
}

}  // namespace trireme::report
