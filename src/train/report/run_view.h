// A run as its directory tells it, and the figures that the page and the summary both show: they
// are taken here, once, so that the two cannot disagree.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/ledger.h"
#include "train/metrics_file.h"
#include "train/report/report.h"

namespace trireme::report {

struct RunView {
  Metrics metrics;
  LedgerRecord ledger;
  std::string recipe;  // recipe.toml's text; empty if there is none

  int64_t first_step() const { return metrics.steps.empty() ? 0 : metrics.steps.front().step; }
  int64_t last_step() const;
  int64_t units() const;  // consumed in all
  // Of the last attempt; `running` when there is no ledger.
  Outcome outcome() const;
  std::string message() const;
};

// Steps in their order; files that are missing read as empty.
RunView view_run(const fs::path& run_dir, const std::string& unit);

// The mean loss of the last steps, as the smoothed curve ends. nullopt before the first step.
struct FinalLoss {
  double value = 0;
  int64_t steps = 1;  // that the mean is of
};
std::optional<FinalLoss> final_loss(const RunView& run);

// Medians over the steps that have a value, without the first one, which warms up (unless it is the
// only one).
struct Speed {
  double units_per_second = 0, step_seconds = 0;
  std::optional<double> mfu;
};
std::optional<Speed> speed(const RunView& run);

// The mean of each part over the steps that tell them, without the first one, which warms up
// (unless it is the only one). nullopt where none does.
std::optional<StepParts> parts_of_a_step(const RunView& run);

// The value to speak about: the last one of the test split where there is one (it is read once, at
// the best step), else the last one. nullopt when no evaluation has it.
struct HeldOutFigure {
  double value = 0, best = 0;
  int64_t step = 0, best_step = 0;
  std::string split;
};
std::optional<HeldOutFigure> held_out_figure(const RunView& run, const HeldOutMetric& metric);

// All values of one field of the evaluation lines.
struct HeldOutValue {
  int64_t step = 0;
  double value = 0;
  std::string split;
};
std::vector<HeldOutValue> held_out_values(const RunView& run, const std::string& key);

// "finished after 300 steps", "stopped after 41 steps: SIGTERM", the latter `with_reason`.
std::string outcome_sentence(const RunView& run, bool with_reason);

// The incidents of the facts, and those that the ledger knows: attempts that failed or were killed.
std::vector<Incident> all_incidents(const RunView& run, const ReportFacts& facts);

// The buckets that hold time, the largest first.
std::vector<Bucket> largest_first(const BucketTimes& times);

// "1 step", "300 steps".
std::string counted(int64_t count, const std::string& singular);

}  // namespace trireme::report
