// TensorBoard event files: the numbers and texts of metrics.jsonl for people who have TensorBoard
// open anyway. A file is a list of TFRecords (length, masked CRC-32C, bytes, masked CRC-32C), each
// an `Event` protocol buffer; both are simple enough to be written by hand, and the test reads them
// back with TensorBoard itself.
//
// Resuming opens a new file beside the old ones, named so that it sorts after them, that begins
// with a SessionLog START at the first step to come. TensorBoard then forgets what the old files
// say about that step and later ones, so no curve doubles back.
//
// Tags: a step's fields under their names in metrics.jsonl; an evaluation's as eval/<name> or
// eval/<split>/<name>; samples as text under sample/<place among those of its step>.
//
// One owner, calls from one thread at a time. Failures throw RunError.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "train/append_file.h"
#include "train/metrics_file.h"

namespace trireme {

class TensorBoardWriter {
 public:
  // Seconds since 1970. Only a label, and the stamp in the file's name.
  using WallClock = std::function<double()>;

  // Makes `directory` if it is missing. `keep_through_step` as in MetricsFile. An empty clock is
  // the system's.
  TensorBoardWriter(const fs::path& directory, std::string unit,
                    int64_t keep_through_step = MetricsFile::kNothing, WallClock clock = {});

  void add(const StepMetrics& step);
  void add(const EvalMetrics& evaluation);
  void add(const SampleText& sample);

  const fs::path& path() const { return file_.path(); }

 private:
  void scalars(int64_t step, const NamedValues& values, const std::string& prefix);
  void write_event(std::string_view fields);

  std::string unit_;
  WallClock clock_;
  AppendFile file_;
  int64_t sample_step_ = MetricsFile::kNothing, samples_of_step_ = 0;
};

}  // namespace trireme
