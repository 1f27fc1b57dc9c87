#include "train/report/curves.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "train/report/chart.h"

namespace trireme::report {
namespace {

constexpr size_t kWorthViews = 12;          // points, from which other views of a curve show more
constexpr int kTraining = 0, kHeldOut = 1;  // colours

// One curve of the steps: each value faint and their middle bold, or just bold where there are few.
std::vector<Line> step_lines(const Points& points, const std::string& name, Middle middle) {
  const int64_t reach = smoothing_reach(points.size());
  if (reach == 0) return {{.name = name, .style = Line::Style::bold, .points = points}};
  const Smoothed smooth = smoothed(points, reach, middle);
  return {{.name = name + ", each step",
           .style = Line::Style::faint,
           .points = points,
           .readings = smooth.raw},
          {.name = (middle == Middle::mean ? "mean of " : "median of ") +
                   counted(2 * reach + 1, "step"),
           .style = Line::Style::bold,
           .points = smooth.middle,
           .readings = smooth.middle}};
}

// The points of a held-out value, a line a split.
std::vector<Line> held_out_lines(const RunView& run, const std::string& key,
                                 const std::string& name) {
  std::map<std::string, Points> splits;
  for (const HeldOutValue& value : held_out_values(run, key))
    splits[value.split].push_back({static_cast<double>(value.step), value.value});
  std::vector<Line> lines;
  int color = kHeldOut;
  // "valid" before "test", which is one point that has to lie on top.
  for (auto split = splits.rbegin(); split != splits.rend(); ++split, ++color)
    lines.push_back({.name = split->first.empty() ? name : split->first,
                     .style = Line::Style::dots,
                     .color = std::min(color, 3),
                     .points = split->second});
  return lines;
}

// Says what the curve cannot show.
std::string note_on_gaps(const Points& points) {
  const auto gaps = std::ranges::count_if(points, [](auto& p) { return !std::isfinite(p.y); });
  if (gaps == 0) return "";
  const auto first = std::ranges::find_if(points, [](auto& p) { return !std::isfinite(p.y); });
  return concat(counted(gaps, "value"), " not finite, first at step ",
                format_count(static_cast<uint64_t>(first->x)), ".");
}

template <class Member>
Points points_of(const RunView& run, Member member) {
  Points points;
  points.reserve(run.metrics.steps.size());
  for (const StepMetrics& step : run.metrics.steps)
    points.push_back({static_cast<double>(step.step), member(step)});
  return points;
}

double steps_of(const RunView& run) { return static_cast<double>(run.last_step()); }

std::vector<Mark> marks(const RunView& run, const ReportFacts& facts) {
  std::vector<Mark> out;
  for (const Attempt& attempt : run.ledger.attempts)
    if (attempt.resumed_after > 0)
      out.push_back({static_cast<double>(attempt.resumed_after), false});
  for (const Incident& incident : facts.incidents)
    if (incident.step > 0) out.push_back({static_cast<double>(incident.step), true});
  return out;
}

Chart loss_chart(const RunView& run, const ReportFacts& facts) {
  const Points points = points_of(run, [](auto& step) { return step.loss; });
  Chart chart{.id = "loss",
              .title = "Loss",
              .unit = facts.loss_unit,
              .height_px = 280,
              .steps = steps_of(run),
              .lines = step_lines(points, "training", Middle::mean),
              .marks = marks(run, facts),
              .note = note_on_gaps(points)};
  for (Line& line : held_out_lines(run, facts.loss_key, "held-out"))
    chart.lines.push_back(std::move(line));
  if (points.size() >= kWorthViews)
    chart.views = {{.name = "linear"},
                   {.name = "log–log", .log_x = true, .log_y = true},
                   {.name = "last half", .from = 0.5}};
  return chart;
}

Chart held_out_chart(const RunView& run, const HeldOutMetric& metric, size_t number) {
  Chart chart{.id = concat("heldout", number),
              .title = "Held-out " + metric.label,
              .unit = "",
              .steps = steps_of(run),
              .lines = held_out_lines(run, metric.key, metric.label)};
  const auto figure = held_out_figure(run, metric);
  if (figure && figure->best_step != figure->step)
    chart.note = concat("Best: ", significant(figure->best), " at step ",
                        format_count(static_cast<uint64_t>(figure->best_step)), ".");
  if (!chart.lines.empty() && chart.lines.front().points.size() >= kWorthViews)
    chart.views = {{.name = "linear"}, {.name = "last half", .from = 0.5}};
  return chart;
}

Chart step_chart(const std::string& id, const std::string& title, const std::string& unit,
                 const Points& points, double steps) {
  Chart chart{.id = id,
              .title = title,
              .unit = unit,
              .from_zero = true,
              .steps = steps,
              .lines = step_lines(points, title, Middle::median),
              .note = note_on_gaps(points)};
  if (chart.lines.size() > 1) chart.lines.front().name = "each step";
  return chart;
}

}  // namespace

Html curves(const RunView& run, const ReportFacts& facts) {
  Html out = draw(loss_chart(run, facts));
  Html small;
  for (size_t i = 0; i < facts.held_out.size(); ++i)
    if (facts.held_out[i].key != facts.loss_key)
      small.add(draw(held_out_chart(run, facts.held_out[i], i)));

  // A schedule has no noise: it is drawn as it is.
  Chart rate{.id = "rate",
             .title = "Learning rate",
             .unit = "",
             .from_zero = true,
             .steps = steps_of(run),
             .lines = {{.name = "learning rate",
                        .points = points_of(run, [](auto& step) { return step.learning_rate; })}}};
  small.add(draw(rate));

  Chart norm = step_chart("norm", "Gradient norm", "unclipped",
                          points_of(run, [](auto& step) { return step.grad_norm; }), steps_of(run));
  if (run.metrics.steps.size() >= kWorthViews)
    norm.views = {{.name = "log", .log_y = true}, {.name = "linear"}};
  small.add(draw(norm));
  small.add(draw(step_chart("speed", "Throughput", facts.unit + "/s",
                            points_of(run, [](auto& step) { return step.units_per_second; }),
                            steps_of(run))));
  if (!small.empty()) out.add("<div class=\"small-charts\">").add(small).add("</div>");
  return out;
}

}  // namespace trireme::report
