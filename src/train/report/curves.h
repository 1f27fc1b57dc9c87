// The charts of a run: loss with the held-out loss, further held-out values, learning rate,
// gradient norm, throughput.
#pragma once

#include "train/report/html.h"
#include "train/report/run_view.h"

namespace trireme::report {

// Empty when there is nothing to draw.
Html curves(const RunView& run, const ReportFacts& facts);

}  // namespace trireme::report
