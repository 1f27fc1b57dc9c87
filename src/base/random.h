// Random numbers that are functions, not streams: element i of the stream (seed, name) is the same
// number wherever and in whatever order it is asked for. So initial values, dropout masks, data
// order and sampling do not depend on the layout, and a checkpoint needs nothing but the seed and
// the step.
//
// Source of the generator: Philox 4x32-10, Salmon et al., "Parallel random numbers: as easy as 1,
// 2, 3", SC 2011. Any thread. Cost: about 10 ns a block of four 32-bit words.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme {

// The bare generator: ten rounds on a 128-bit counter under a 64-bit key.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A seeded 64-bit hash of a name (XXH3). Part of the contract of every stored initial value: it
// never changes.
uint64_t hash_name(std::string_view name, uint64_t seed = 0);

// One stream of numbers, named after its use: RandomStream(seed, "init/model.norm.weight").
// `draw` sets apart numbers of one stream that belong to different occasions, such as steps or
// epochs.
class RandomStream {
 public:
  RandomStream(uint64_t seed, std::string_view name, uint64_t draw = 0);

  uint64_t bits(uint64_t index) const;   // 64 uniform bits
  double uniform(uint64_t index) const;  // [0, 1), 53 bits
  uint64_t below(uint64_t index,
                 uint64_t bound) const;  // [0, bound); bias below bound / 2^64. REQUIRES: bound > 0
  double normal(uint64_t index) const;   // N(0, 1), Box-Muller on a block of its own

 private:
  std::array<uint32_t, 4> block(uint64_t index) const;
  std::array<uint32_t, 2> key_;
  uint64_t draw_;
};

// A permutation of [0, size) that is computed place by place, in O(1) and without memory: a keyed
// Feistel network on the next even power of two, walked until it lands below `size` (at most four
// rounds of walking on average).
class Permutation {
 public:
  Permutation(uint64_t size, uint64_t seed, std::string_view name,
              uint64_t draw = 0);             // REQUIRES: size > 0
  uint64_t operator()(uint64_t place) const;  // REQUIRES: place < size

 private:
  uint64_t size_;
  int half_bits_;
  std::array<uint64_t, 6> round_keys_;
};

}  // namespace trireme
