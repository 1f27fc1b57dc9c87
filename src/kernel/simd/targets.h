// Included before Highway by every file of simd/, so that all agree on the instruction sets they
// are compiled for: the compiler's baseline (generic vectors on x86-64, NEON on Arm), AVX2 and
// AVX-512, chosen once per process by what the CPU has. The older SSE sets would double the compile
// time for machines that nobody trains on; loops here keep arrays of vectors, which the scalable
// sets (SVE, RVV) do not allow.
#pragma once

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
