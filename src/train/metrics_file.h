// metrics.jsonl: what a run measured, one JSON object a line, appended as it happens.
//
// Three kinds of line, in the order in which they were added:
//   a step      {"step", "<unit>", "loss", "learning_rate", "grad_norm", "step_seconds",
//                "<unit>_per_second", "mfu", "peak_memory_bytes", …the parts of its time, …the
//                task's own}
//   "eval"      {"kind": "eval", "step", "<unit>", "split" (if it has a name), …held-out values,
//                "eval_seconds"}
//   "sample"    {"kind": "sample", "step", "prompt", "text"}: `text` is what the model went on with
// <unit> is the task's word for what a step consumes: "tokens", "samples".
//
// Numbers: a double is written with the fewest digits that read back to the same bits, and always
// with a point or an exponent. JSON has no numbers that are not finite: they are the strings
// "NaN", "Infinity" and "-Infinity". Bytes that are not UTF-8 become U+FFFD.
//
// Durability: a line is one write() to the end of the file, so that a killed process leaves whole
// lines and at most one torn last one; sync() before a checkpoint commits makes them survive the
// machine. A line that cannot be read is left out by the reader and cut, with a warning unless it
// is a torn last one, on resume.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/append_file.h"

namespace trireme {

namespace fs = std::filesystem;

using NamedValues = std::vector<std::pair<std::string, double>>;

// Where a step's time went, "gemm_seconds" … on its line: the parts add up to step_seconds.
struct StepParts {
  double gemm_seconds = 0, attention_seconds = 0, other_compute_seconds = 0, update_seconds = 0;
  double waiting_seconds = 0;  // for data, lanes and ranks
};
inline constexpr std::pair<const char*, double StepParts::*> kStepParts[] = {
    {"gemm_seconds", &StepParts::gemm_seconds},
    {"attention_seconds", &StepParts::attention_seconds},
    {"other_compute_seconds", &StepParts::other_compute_seconds},
    {"update_seconds", &StepParts::update_seconds},
    {"waiting_seconds", &StepParts::waiting_seconds}};

struct StepMetrics {
  int64_t step = 0;   // the first is 1
  int64_t units = 0;  // consumed in the steps 1 … step, over all ranks
  double loss = 0, learning_rate = 0, grad_norm = 0, step_seconds = 0, units_per_second = 0;
  std::optional<double> mfu = {};  // 0 … 1; left out of the line where no peak is known
  int64_t peak_memory_bytes = 0;
  std::optional<StepParts> parts = {};
  NamedValues more = {};  // the task's own, at the end of the line
};

struct EvalMetrics {
  int64_t step = 0, units = 0;
  std::string split = {};   // "valid", "test"; empty: there is only one
  NamedValues values = {};  // "loss", "bits_per_byte", … or "auc", "gauc", …
  double seconds = 0;
};

struct SampleText {
  int64_t step = 0;
  std::string prompt = {}, text = {};
};

// The writer. One owner, calls from one thread at a time. A write that fails (a full disk) leaves
// the file as it was before the line and throws RunError.
class MetricsFile {
 public:
  static constexpr int64_t kNothing = -1;

  // Opens or makes the file. Lines of steps after `keep_through_step` and torn lines are cut first,
  // atomically; kNothing empties the file. A resumed run passes the step of its checkpoint: an
  // evaluation at that very step is kept, and last_evaluation() tells whether there was one.
  MetricsFile(fs::path path, std::string unit, int64_t keep_through_step = kNothing);

  void add(const StepMetrics& step);
  void add(const EvalMetrics& evaluation);
  void add(const SampleText& sample);
  // Waits for the disk: call it before a checkpoint commits.
  void sync() { file_.sync(); }

  const std::string& unit() const { return unit_; }
  // The step of the newest evaluation in the file, kNothing if there is none.
  int64_t last_evaluation() const { return last_evaluation_; }

 private:
  std::string unit_;
  int64_t last_evaluation_ = kNothing;  // set while the file is prepared
  AppendFile file_;
};

// A metrics.jsonl as it was read. Lines of an unknown kind are passed over.
struct Metrics {
  std::vector<StepMetrics> steps;
  std::vector<EvalMetrics> evaluations;
  std::vector<SampleText> samples;
  int64_t unreadable_lines = 0;  // torn or damaged, and left out
};

// A missing file reads as an empty one: a run may stop before its first step. `unit` as it was
// written. Safe while a run is writing. Cost: about 5 µs a line.
Metrics read_metrics(const fs::path& path, const std::string& unit);

}  // namespace trireme
