// For tests: run directories as the trainer leaves them, made up from closed forms and fixed seeds,
// and the facts that go with them.
#pragma once

#include <filesystem>
#include <string>

#include "train/report/report.h"

namespace trireme::report {

struct ExampleRun {
  fs::path dir;
  ReportFacts facts;
};

// A small language model: an evaluation with two samples each `every` steps.
ExampleRun example_pretraining(const fs::path& dir, int64_t steps, int64_t every);
// Stopped by a signal after its first step, before any evaluation.
ExampleRun example_stopped(const fs::path& dir);
// Killed, resumed, and failed by a loss that is not finite.
ExampleRun example_failed(const fs::path& dir);
// A click model with valid and test splits: no text, no MFU, other words.
ExampleRun example_clicks(const fs::path& dir);
// Every string that a user, a model or a file can bring in is an attack on the page.
ExampleRun example_hostile(const fs::path& dir);

// What example_hostile() puts into its strings.
inline const std::string kHostile =
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"' onload=\"alert(3)\" "
    "--><!-- ]]> </pre></style> &amp; \xff\xc3 \x01\x1b[31m \xe2\x80\xae";

}  // namespace trireme::report
