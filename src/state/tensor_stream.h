// A tensor of a checkpoint from its first element to its last, in pieces that fit into memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "state/checkpoint.h"

namespace trireme {

// Memory: `slab_bytes`, or one innermost row if that is more. One thread. Errors: as
// Checkpoint::read().
class TensorStream {
 public:
  // `from` and `tensor` outlive it.
  TensorStream(const Checkpoint& from, const TensorRecord& tensor, DType dtype,
               int64_t slab_bytes = 16 << 20);

  // Fills `out` with the next bytes, row-major. REQUIRES: so many are left.
  void read(std::span<std::byte> out);

  int64_t bytes_left() const { return bytes_left_; }

 private:
  void fill();

  const Checkpoint& from_;
  const TensorRecord& tensor_;
  DType dtype_;
  int64_t bytes_left_;
  size_t dim_ = 0;           // slabs are ranges of this dim; the dims before it have one index each
  int64_t slab_extent_;      // indices of dim_ in a slab
  std::vector<int64_t> at_;  // the next slab's index in dims up to dim_
  std::vector<std::byte> slab_;
  size_t used_ = 0;  // bytes of the slab that were handed out
};

}  // namespace trireme
