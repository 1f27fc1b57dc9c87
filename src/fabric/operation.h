// One communication, as a value: what a rank brings to it and where the result goes.
//
// All ranks of a group make the same collective, with the same element type and sizes; each fabric
// checks that they do. Tensors are contiguous, on the CPU, and are read and written in place,
// without copies: from the call until it is done nobody else may write the inputs or touch the
// outputs. An Operation keeps its tensors alive.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/segments.h"
#include "layout/dtype.h"

namespace trireme {

enum class OpKind : uint8_t {
  all_reduce_sum,
  all_reduce_max,
  all_gather,
  reduce_scatter_sum,
  all_to_all,
  broadcast,
  barrier,
  send,
  recv
};
inline constexpr size_t kOpKinds = 9;

std::string_view name_of(OpKind kind);

struct Operation {
  OpKind kind = OpKind::barrier;
  at::Tensor input, output;  // of any shape; the same tensor where an operation works in place
  SegmentMap segments;       // all_gather, reduce_scatter_sum
  std::vector<int64_t> send_counts, recv_counts;  // all_to_all: elements to and from each rank
  int peer = -1;            // group rank: broadcast's root, send's receiver, recv's sender
  bool accumulate = false;  // reduce_scatter_sum: add to what the output holds
  std::chrono::milliseconds timeout{0};  // 0: the communicator's

  Operation&& within(std::chrono::milliseconds limit) && {
    timeout = limit;
    return std::move(*this);
  }
};

// Builders. Each checks what one rank can check by itself (InputError).
namespace op {

// Sums add rank 0's value, then rank 1's, … : the same bits on all ranks and in every run. They are
// made in fp32 for bf16 and fp16, else in the element type (integers wrap); a maximum is NaN if one
// of the values is.
Operation all_reduce_sum(const at::Tensor& x);  // in place
Operation all_reduce_max(const at::Tensor& x);  // in place

// Pieces of all ranks, one after the other, into `whole` on every rank. No counts: equal pieces.
Operation all_gather(const at::Tensor& piece, const at::Tensor& whole,
                     const std::vector<int64_t>& counts = {});
// The shards of all ranks to their segments of `whole`, on every rank. `shard` may be the memory of
// one's own segments of `whole`, if they are one stretch. What no rank holds is left as it is.
Operation all_gather_segments(const at::Tensor& shard, const at::Tensor& whole,
                              const SegmentMap& segments);

// piece = sum over ranks of my part of their `whole`. No counts: equal parts.
Operation reduce_scatter_sum(const at::Tensor& whole, const at::Tensor& piece,
                             const std::vector<int64_t>& counts = {});
// shard (+)= sum over ranks of their `whole` at my segments. `shard` is of whole's type or fp32:
// sums of bf16 gradients may stay in fp32. `accumulate` adds the finished sum to what the shard
// holds. `shard` may be the memory of one's own segments of `whole`, if they are one stretch.
Operation reduce_scatter_segments(const at::Tensor& whole, const at::Tensor& shard,
                                  const SegmentMap& segments, bool accumulate = false);

// send_counts[r] elements of `input`, in rank order, go to rank r; recv_counts[r] come from it, in
// rank order.
Operation all_to_all(const at::Tensor& input, const at::Tensor& output,
                     std::vector<int64_t> send_counts, std::vector<int64_t> recv_counts);

Operation broadcast(const at::Tensor& x, int root);  // in place
Operation barrier();

// Between two ranks, matched in the order of calls for each ordered pair. They complete together
// and block no other operation, so both ranks may start a send first.
Operation send(const at::Tensor& x, int to);
Operation recv(const at::Tensor& x, int from);

}  // namespace op

// What the ranks of a group must agree on, without the tensors.
struct Signature {
  OpKind kind = OpKind::barrier;
  int32_t peer = -1;
  DType in = DType::float32, out = DType::float32;
  int64_t numel = 0;           // of the whole buffer
  uint64_t segments_hash = 0;  // all_gather, reduce_scatter_sum
  std::vector<int64_t> send_counts, recv_counts;
};
Signature signature_of(const Operation& operation);

// "all_reduce_sum of 12 fp32", for messages.
std::string describe(const Signature& signature);

// InputError unless the operation fits a group of this size, seen from this rank.
void check_fits(const Operation& operation, int rank, int size);

// Why operations of these signatures, one a rank, cannot be one collective: names two ranks and
// what each of them calls. Empty: they can.
std::string disagreement(std::span<const Signature> by_rank, std::span<const int> global_ranks);

// Bytes that `rank` must receive from others, on any fabric: an all-reduce counts as reduce-scatter
// plus all-gather.
int64_t received_bytes(const Operation& operation, int rank, int size);

// The group of one rank: copies where input and output are two, and changes no bit where they are
// one.
void execute_alone(const Operation& operation);

}  // namespace trireme
