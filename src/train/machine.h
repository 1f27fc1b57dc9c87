// What a run runs on: names for reports, and the peak that MFU is a share of.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

#include "engine/lanes.h"
#include "train/report/report.h"

namespace trireme {

// Versions of Trireme, libtorch and the compiler, the processor, cores and memory.
std::vector<Fact> machine_facts();

// FLOP/s of matrix products: what each lane reached at best in 30 products of 384 x 384 x 384, a
// size that stays in cache, while all lanes were at it; added up. Takes about 0.05 s. Other load on
// the machine lowers it little.
double measured_peak_flops(Lanes& lanes, at::ScalarType dtype);

}  // namespace trireme
