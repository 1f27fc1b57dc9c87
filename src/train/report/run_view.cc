#include "train/report/run_view.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "train/report/series.h"

namespace trireme::report {
namespace {

// Median of a member over the steps, without the first.
template <class Member>
double median(const std::vector<StepMetrics>& steps, Member member) {
  std::vector<double> values;
  for (size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i)
    values.push_back(member(steps[i]));
  return quantile(values, 0.5);
}

}  // namespace

int64_t RunView::last_step() const {
  const int64_t done = ledger.attempts.empty() ? 0 : ledger.attempts.back().last_step;
  return metrics.steps.empty() ? done : std::max(done, metrics.steps.back().step);
}

int64_t RunView::units() const { return metrics.steps.empty() ? 0 : metrics.steps.back().units; }

Outcome RunView::outcome() const {
  return ledger.attempts.empty() ? Outcome::running : ledger.attempts.back().outcome;
}

std::string RunView::message() const {
  return ledger.attempts.empty() ? "" : ledger.attempts.back().message;
}

RunView view_run(const fs::path& run_dir, const std::string& unit) {
  RunView run;
  run.metrics = read_metrics(run_dir / "metrics.jsonl", unit);
  run.ledger = read_ledger(run_dir / "ledger.json");
  if (fs::exists(run_dir / "recipe.toml")) run.recipe = read_file(run_dir / "recipe.toml");
  // They are in order already unless somebody wrote into the file.
  std::ranges::stable_sort(run.metrics.steps, {}, &StepMetrics::step);
  std::ranges::stable_sort(run.metrics.evaluations, {}, &EvalMetrics::step);
  std::ranges::stable_sort(run.metrics.samples, {}, &SampleText::step);
  return run;
}

std::optional<FinalLoss> final_loss(const RunView& run) {
  const auto& steps = run.metrics.steps;
  if (steps.empty()) return std::nullopt;
  const int64_t reach = smoothing_reach(steps.size());
  double sum = 0, count = 0;
  for (size_t i = steps.size() - 1 - static_cast<size_t>(reach); i < steps.size(); ++i)
    if (std::isfinite(steps[i].loss)) sum += steps[i].loss, ++count;
  return FinalLoss{count > 0 ? sum / count : std::nan(""), reach + 1};
}

std::optional<Speed> speed(const RunView& run) {
  const auto& steps = run.metrics.steps;
  if (steps.empty()) return std::nullopt;
  Speed out;
  out.units_per_second = median(steps, [](auto& step) { return step.units_per_second; });
  out.step_seconds = median(steps, [](auto& step) { return step.step_seconds; });
  const double mfu = median(steps, [](auto& step) { return step.mfu.value_or(std::nan("")); });
  if (std::isfinite(mfu)) out.mfu = mfu;
  return out;
}

std::optional<StepParts> parts_of_a_step(const RunView& run) {
  const auto& steps = run.metrics.steps;
  StepParts sum;
  double count = 0;
  for (size_t i = steps.size() > 1 ? 1 : 0; i < steps.size(); ++i) {
    if (!steps[i].parts) continue;
    ++count;
    for (const auto& [name, part] : kStepParts) sum.*part += *steps[i].parts.*part;
  }
  if (count == 0) return std::nullopt;
  for (const auto& [name, part] : kStepParts) sum.*part /= count;
  return sum;
}

std::vector<HeldOutValue> held_out_values(const RunView& run, const std::string& key) {
  std::vector<HeldOutValue> out;
  for (const EvalMetrics& evaluation : run.metrics.evaluations)
    for (const auto& [name, value] : evaluation.values)
      if (name == key) out.push_back({evaluation.step, value, evaluation.split});
  return out;
}

std::optional<HeldOutFigure> held_out_figure(const RunView& run, const HeldOutMetric& metric) {
  const auto values = held_out_values(run, metric.key);
  if (values.empty()) return std::nullopt;
  const auto test = std::find_if(values.rbegin(), values.rend(),
                                 [](auto& value) { return value.split == "test"; });
  const HeldOutValue& chosen = test != values.rend() ? *test : values.back();
  HeldOutFigure out{chosen.value, chosen.value, chosen.step, chosen.step, chosen.split};
  for (const HeldOutValue& value : values) {
    const bool better = metric.higher_is_better ? value.value > out.best : value.value < out.best;
    if (value.split == chosen.split && better) out.best = value.value, out.best_step = value.step;
  }
  return out;
}

std::vector<Bucket> largest_first(const BucketTimes& times) {
  const auto time = [&](Bucket bucket) { return times[static_cast<size_t>(bucket)]; };
  std::vector<Bucket> order;
  for (size_t i = 0; i < kBuckets; ++i)
    if (times[i].count() > 0) order.push_back(static_cast<Bucket>(i));
  std::ranges::stable_sort(order, [&](Bucket a, Bucket b) { return time(a) > time(b); });
  return order;
}

std::string counted(int64_t count, const std::string& singular) {
  return concat(format_count(static_cast<uint64_t>(count)), " ", singular, count == 1 ? "" : "s");
}

std::string outcome_sentence(const RunView& run, bool with_reason) {
  const std::string done = counted(run.last_step(), "step");
  const std::string why = with_reason && !run.message().empty() ? ": " + run.message() : "";
  switch (run.outcome()) {
    case Outcome::finished:
      return "finished after " + done;
    case Outcome::stopped:
      return "stopped after " + done + why;
    case Outcome::failed:
      return "failed after " + done + why;
    case Outcome::unknown:
      return "ended without a word after " + done;
    case Outcome::running:
      return "running, " + done + " done";
  }
  TRIREME_ASSERT(false, "outcome ", static_cast<int>(run.outcome()));
}

std::vector<Incident> all_incidents(const RunView& run, const ReportFacts& facts) {
  std::vector<Incident> out = facts.incidents;
  for (size_t i = 0; i < run.ledger.attempts.size(); ++i) {
    const Attempt& attempt = run.ledger.attempts[i];
    const std::string which = concat("attempt ", i + 1, " of ", run.ledger.attempts.size());
    if (attempt.outcome == Outcome::unknown)
      out.push_back({attempt.last_step,
                     which + " ended without a word: it was killed, or its machine stopped"});
    if (attempt.outcome == Outcome::failed)
      out.push_back({attempt.last_step, which + " failed: " + attempt.message});
  }
  std::ranges::stable_sort(out, {}, &Incident::step);
  return out;
}

}  // namespace trireme::report
