// The parts of the page besides the curves. Each is empty when the run has nothing for it.
#pragma once

#include "train/report/html.h"
#include "train/report/run_view.h"

namespace trireme::report {

Html header(const RunView& run, const ReportFacts& facts);  // name, outcome, figures
Html incidents(const RunView& run, const ReportFacts& facts);
Html evaluations(const RunView& run, const ReportFacts& facts);  // as a table
Html ledger(const RunView& run);                                 // bar, legend, attempts
Html step_time(const RunView& run);                              // the parts of a step
Html samples(const RunView& run);
Html fact_tables(const ReportFacts& facts);  // model, layout, memory, machine
Html recipe(const RunView& run);

}  // namespace trireme::report
