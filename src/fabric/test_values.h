// Test support: values that no other rank and no other place has, and sums of them by the plain
// definition.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <vector>

namespace trireme {

inline const std::vector<int> kRankCounts = {1, 2, 3, 4, 7};
inline const std::vector<int64_t> kNumels = {0, 1, 5, 4096,
                                             4099};  // empty, one, odd, whole blocks, prime
inline const std::vector<at::ScalarType> kTypes = {at::kFloat, at::kDouble, at::kBFloat16,
                                                   at::kHalf,  at::kLong,   at::kInt};

// Rank r's element i is small enough that sums over seven ranks are exact in every type: bf16
// counts to 256. A lost, doubled or misplaced element changes a sum.
inline at::Tensor exact_values(int rank, int64_t numel, at::ScalarType type) {
  return at::arange(numel, at::kLong).remainder(4).add(4 * (rank + 1)).to(type);
}
inline at::Tensor exact_sum(int ranks, int64_t numel, at::ScalarType type) {
  return at::arange(numel, at::kLong).remainder(4).mul(ranks).add(2 * ranks * (ranks + 1)).to(type);
}

// Random values, different for each rank; sums of them round, so that order and precision show in
// the bits.
inline at::Tensor rough_values(int rank, int64_t numel, at::ScalarType type, uint64_t seed = 1) {
  auto generator = at::detail::createCPUGenerator(seed * 1000 + static_cast<uint64_t>(rank));
  return at::randn({numel}, generator, at::kDouble).mul(1 + rank).to(type);
}

// Elements of all ranks added in rank order, one at a time, in fp32 for half types; then rounded
// once.
inline at::Tensor naive_sum(const std::vector<at::Tensor>& by_rank, at::ScalarType out) {
  const at::ScalarType type = by_rank[0].scalar_type();
  const at::ScalarType wide = type == at::kBFloat16 || type == at::kHalf ? at::kFloat : type;
  at::Tensor sum = by_rank[0].to(wide, false, /*copy=*/true);
  for (size_t rank = 1; rank < by_rank.size(); ++rank) sum = sum + by_rank[rank].to(wide);
  return sum.to(out);
}

}  // namespace trireme
