// In which order samples of several weighted sources follow one another.
//
// A period of P places; source k has c_k of them, c_k / P being its share of the weights: exactly
// when the weights are decimals of up to six digits whose smallest period is below 2^20 places,
// else to within 1 / 2^20. Within the period the sources are spread by the chairman assignment
// (Tijdeman, "The chairman assignment problem", Discrete Mathematics 32, 1980): after n places each
// source k of K has had n c_k / P to within 1 - 1 / (2K - 2).
//
// Threads: any. Cost: O(K P) and 6 P bytes to make, O(1) a place.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

class Blend {
 public:
  struct Place {
    uint64_t source;
    uint64_t index;  // how many places the source had before
  };

  // InputError unless there is a weight, and each is finite and above 0. One weight: period 1.
  explicit Blend(std::span<const double> weights);

  Place operator()(uint64_t index) const;
  uint64_t period() const { return sources_.size(); }
  const std::vector<uint64_t>& counts() const { return counts_; }  // c_k

 private:
  std::vector<uint64_t> counts_;
  std::vector<uint16_t> sources_;  // [P]
  std::vector<uint32_t> before_;   // [P] places of the same source earlier in the period
};

}  // namespace trireme
