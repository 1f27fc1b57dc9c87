#include "base/checksum.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace trireme {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed) {
  constexpr size_t kStep = size_t{1} << 30;  // crc32_iscsi takes an int
  uint32_t crc = ~seed;
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kStep);
    auto* data = reinterpret_cast<unsigned char*>(
        const_cast<std::byte*>(bytes.data()));  // read only, by its contract
    crc = crc32_iscsi(data, static_cast<int>(n), crc);
    bytes = bytes.subspan(n);
  }
  return ~crc;
}

}  // namespace trireme
