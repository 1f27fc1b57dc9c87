// The mixer that spreads keys over parts, segments and buckets: the 64-bit finalizer of MurmurHash3
// (Appleby, public domain). A bijection, so distinct keys keep distinct hashes.
#pragma once

#include <cstdint>

namespace trireme {

constexpr uint64_t mix64(uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccd;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53;
  return x ^ x >> 33;
}

}  // namespace trireme
