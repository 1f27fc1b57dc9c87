#include "train/trace.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"

namespace trireme {
namespace {

// "forward layer 3", without micro-batch and lane, so that equal work has an equal name.
std::string name_of_span(const StepProgram& program, const Action& action) {
  const bool block = action.kind == ActionKind::forward || action.kind == ActionKind::backward;
  const auto& names = action.table >= 0 ? program.table_names
                      : block           ? program.block_names
                                        : program.unit_names;
  const int32_t which = action.table >= 0 ? action.table : action.block;
  return concat(name_of(action.kind), which < 0 ? "" : " ",
                which < 0 ? "" : names[static_cast<size_t>(which)]);
}

}  // namespace

Trace::Trace(const StepProgram& program, int rank)
    : program_(program),
      rank_(rank),
      origin_(Clock::now()),
      lanes_(static_cast<size_t>(program.lanes) + 1) {}

int64_t Trace::nanoseconds(Clock::time_point time) const {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time - origin_).count();
}

void Trace::begin_step(int64_t step) { steps_.push_back({step, Clock::now(), {}}); }

void Trace::end_step() { steps_.back().end = Clock::now(); }

void Trace::record(ActionId id, Clock::time_point turned, Clock::time_point started,
                   Clock::time_point ended) {
  const int32_t lane = program_.actions[static_cast<size_t>(id)].lane;
  auto& spans = lanes_[static_cast<size_t>(lane == kCommunicationLane ? program_.lanes : lane)];
  if (started > turned) spans.push_back({-1, nanoseconds(turned), nanoseconds(started)});
  spans.push_back({id, nanoseconds(started), nanoseconds(ended)});
}

void Trace::write(const std::filesystem::path& path) const {
  nlohmann::json events = nlohmann::json::array();
  const auto name_row = [&](const char* what, int row, const std::string& name) {
    events.push_back(
        {{"ph", "M"}, {"pid", rank_}, {"tid", row}, {"name", what}, {"args", {{"name", name}}}});
  };
  const auto span = [&](int row, const std::string& name, std::string_view category, int64_t begin,
                        int64_t end, nlohmann::json args) {
    events.push_back({{"ph", "X"},
                      {"pid", rank_},
                      {"tid", row},
                      {"name", name},
                      {"cat", category},
                      {"ts", static_cast<double>(begin) / 1e3},
                      {"dur", static_cast<double>(end - begin) / 1e3},
                      {"args", std::move(args)}});
  };
  name_row("process_name", 0, concat("rank ", rank_));
  name_row("thread_name", 0, "steps");
  for (const Step& step : steps_)
    span(0, concat("step ", step.number), "step", nanoseconds(step.begin), nanoseconds(step.end),
         nlohmann::json::object());
  for (size_t lane = 0; lane < lanes_.size(); ++lane) {
    const int row = static_cast<int>(lane) + 1;
    if (lanes_[lane].empty()) continue;
    name_row("thread_name", row,
             lane + 1 == lanes_.size() ? "communication" : concat("lane ", lane));
    for (const Span& one : lanes_[lane]) {
      if (one.action < 0) {
        span(row, "waiting", "waiting", one.begin, one.end, nlohmann::json::object());
        continue;
      }
      const Action& action = program_.actions[static_cast<size_t>(one.action)];
      nlohmann::json args = {{"action", one.action}};
      if (action.micro >= 0) args["micro"] = action.micro;
      if (action.bytes > 0) args["bytes"] = action.bytes;
      if (action.flops > 0) args["flops"] = action.flops;
      span(row, name_of_span(program_, action), name_of(action.kind), one.begin, one.end,
           std::move(args));
    }
  }
  write_file(path, nlohmann::json{{"traceEvents", std::move(events)}}.dump());
}

}  // namespace trireme
