// What a run runs on: names for reports, and the peak that MFU is a share of.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/lanes.h"
#include "train/report/report.h"

namespace trireme {

// Versions of Trireme, libtorch and the compiler, the processor, cores and memory.
std::vector<Fact> machine_facts();

// FLOP/s of matrix products on all lanes at once, in the given element type: the best of a few
// short rounds of 384 x 384 x 384 products, a size that stays in cache. Takes about 0.1 s. Other
// load on the machine lowers it.
double measured_peak_flops(Lanes& lanes, at::ScalarType dtype);

}  // namespace trireme
