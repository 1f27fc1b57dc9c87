#include "base/random.h"

#include <xxhash.h>

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace trireme {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9E3779B9;
    k[1] += 0xBB67AE85;
  }
  return c;
}

uint64_t hash_name(std::string_view name, uint64_t seed) {
  return XXH3_64bits_withSeed(name.data(), name.size(), seed);
}

RandomStream::RandomStream(uint64_t seed, std::string_view name, uint64_t draw) : draw_(draw) {
  const uint64_t key = hash_name(name, seed);
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
}

std::array<uint32_t, 4> RandomStream::block(uint64_t index) const {
  return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                 static_cast<uint32_t>(draw_), static_cast<uint32_t>(draw_ >> 32)},
                key_);
}

uint64_t RandomStream::bits(uint64_t index) const {
  const auto b = block(index);
  return uint64_t{b[1]} << 32 | b[0];
}

double RandomStream::uniform(uint64_t index) const {
  return static_cast<double>(bits(index) >> 11) * 0x1p-53;
}

uint64_t RandomStream::below(uint64_t index, uint64_t bound) const {
  TRIREME_ASSERT(bound > 0);
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits(index)) * bound) >> 64);
}

double RandomStream::normal(uint64_t index) const {
  const auto b = block(index);
  const double u = (static_cast<double>(uint64_t{b[1]} << 32 | b[0]) + 1) * 0x1p-64;  // (0, 1]
  const double v = static_cast<double>(uint64_t{b[3]} << 32 | b[2]) * 0x1p-64;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

Permutation::Permutation(uint64_t size, uint64_t seed, std::string_view name, uint64_t draw)
    : size_(size) {
  TRIREME_ASSERT(size > 0);
  half_bits_ = 1;
  while (half_bits_ < 32 && uint64_t{1} << (2 * half_bits_) < size) ++half_bits_;
  const RandomStream keys(seed, name, draw);
  for (size_t i = 0; i < round_keys_.size(); ++i) round_keys_[i] = keys.bits(i);
}

uint64_t Permutation::operator()(uint64_t place) const {
  TRIREME_ASSERT(place < size_, "place ", place, " of ", size_);
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  do {
    uint64_t left = place >> half_bits_, right = place & mask;
    for (const uint64_t key : round_keys_) {
      uint64_t mixed = (right ^ key) * 0x9E3779B97F4A7C15;
      mixed ^= mixed >> 29;
      mixed *= 0xBF58476D1CE4E5B9;
      left = std::exchange(right, left ^ (mixed >> 32 & mask));
    }
    place = left << half_bits_ | right;
  } while (place >= size_);
  return place;
}

}  // namespace trireme
