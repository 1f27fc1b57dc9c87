// What a rank did when, action by action of its step program: a trace for Perfetto
// (ui.perfetto.dev) and Chrome's chrome://tracing.
//
// One row a lane; waiting for others is a span of its own in front of what waited. Spans of a lane
// follow each other without overlap, so they add up to the step. Cost: two spans of 24 bytes an
// action; nothing is written before write().
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <vector>

#include "plan/program.h"

namespace trireme {

class Trace {
 public:
  using Clock = std::chrono::steady_clock;

  // The program outlives the trace.
  Trace(const StepProgram& program, int rank);

  void begin_step(int64_t step);
  // The lane turned to the action, could start it, and had done it. Called on the action's lane, so
  // lanes record side by side.
  void record(ActionId action, Clock::time_point turned, Clock::time_point started,
              Clock::time_point ended);
  void end_step();

  // The Trace Event Format, times in microseconds from the first step; atomically.
  void write(const std::filesystem::path& path) const;

 private:
  struct Span {
    ActionId action;     // -1: waiting
    int64_t begin, end;  // nanoseconds from origin_
  };
  struct Step {
    int64_t number;
    Clock::time_point begin, end;
  };
  int64_t nanoseconds(Clock::time_point time) const;

  const StepProgram& program_;
  int rank_;
  Clock::time_point origin_;
  std::vector<std::vector<Span>> lanes_;  // the communication lane last
  std::vector<Step> steps_;
};

}  // namespace trireme
