#include "fabric/share.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "fabric/dtype.h"
#include "fabric/reduce.h"
#include "layout/placement.h"

namespace trireme {
namespace {

using Operations = std::span<const Operation* const>;

std::byte* bytes(const at::Tensor& x) { return static_cast<std::byte*>(x.mutable_data_ptr()); }
const std::byte* const_bytes(const at::Tensor& x) {
  return static_cast<const std::byte*>(x.const_data_ptr());
}

void copy(std::byte* to, const std::byte* from, int64_t nbytes) {
  if (to != from && nbytes > 0) std::memcpy(to, from, static_cast<size_t>(nbytes));
}

// Each rank reduces one piece for everybody. Pieces begin at multiples of 64 bytes of the buffer,
// so that two ranks seldom write one cache line.
void all_reduce(Operations by_rank, int rank) {
  const at::Tensor& mine = by_rank[0]->input;
  const auto element = static_cast<int64_t>(mine.element_size());
  const int64_t line = 64 / element, numel = mine.numel();
  const Range lines = even_piece((numel + line - 1) / line, static_cast<int>(by_rank.size()), rank);
  const int64_t begin = std::min(lines.begin * line, numel),
                end = std::min(lines.end * line, numel);
  if (begin == end || by_rank.size() == 1) return;
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  for (const Operation* operation : by_rank) {
    destinations.push_back(bytes(operation->output) + begin * element);
    sources.push_back(destinations.back());
  }
  const DType dtype = dtype_of(mine.scalar_type());
  (by_rank[0]->kind == OpKind::all_reduce_sum ? sum_in_order : max_in_order)(
      dtype, sources, destinations, end - begin);
}

// Every rank fills its own buffer. It begins with its own shard and goes on with its successor's,
// so that not all ranks read from the same one at the same time.
void all_gather(Operations by_rank, int rank) {
  const Operation& mine = *by_rank[static_cast<size_t>(rank)];
  const auto element = static_cast<int64_t>(mine.output.element_size());
  const int size = mine.segments.ranks();
  for (int step = 0; step < size; ++step) {
    const int from = (rank + step) % size;
    const std::byte* shard = const_bytes(by_rank[static_cast<size_t>(from)]->input);
    for (const Segment& segment : mine.segments.of(from)) {
      copy(bytes(mine.output) + segment.offset * element, shard, segment.numel * element);
      shard += segment.numel * element;
    }
  }
}

void reduce_scatter(Operations by_rank, int rank) {
  const Operation& mine = *by_rank[static_cast<size_t>(rank)];
  if (mine.output.numel() == 0) return;
  const auto element = static_cast<int64_t>(mine.input.element_size());
  const DType in = dtype_of(mine.input.scalar_type()), out = dtype_of(mine.output.scalar_type());
  std::byte* shard = bytes(mine.output);
  std::vector<const std::byte*> sources(by_rank.size());
  for (const Segment& segment : mine.segments.of(rank)) {
    for (size_t r = 0; r < by_rank.size(); ++r)
      sources[r] = const_bytes(by_rank[r]->input) + segment.offset * element;
    if (sources.size() == 1 && in == out && !mine.accumulate)
      copy(shard, sources[0], segment.numel * element);  // even a NaN keeps its bits
    else sum_in_order_to(in, sources, out, shard, segment.numel, mine.accumulate);
    shard += segment.numel * static_cast<int64_t>(mine.output.element_size());
  }
}

void all_to_all(Operations by_rank, int rank) {
  const Operation& mine = *by_rank[static_cast<size_t>(rank)];
  const auto element = static_cast<int64_t>(mine.output.element_size());
  std::byte* to = bytes(mine.output);
  for (size_t from = 0; from < by_rank.size(); ++from) {
    const Operation& peer = *by_rank[from];
    int64_t offset = 0;
    for (int r = 0; r < rank; ++r) offset += peer.send_counts[static_cast<size_t>(r)];
    copy(to, const_bytes(peer.input) + offset * element, mine.recv_counts[from] * element);
    to += mine.recv_counts[from] * element;
  }
}

void broadcast(Operations by_rank, int rank) {
  const Operation& mine = *by_rank[static_cast<size_t>(rank)];
  const Operation& root = *by_rank[static_cast<size_t>(mine.peer)];
  copy(bytes(mine.output), const_bytes(root.input), static_cast<int64_t>(mine.output.nbytes()));
}

}  // namespace

void execute_share(Operations by_rank, int rank) noexcept {
  switch (by_rank[0]->kind) {
    case OpKind::all_reduce_sum:
    case OpKind::all_reduce_max:
      return all_reduce(by_rank, rank);
    case OpKind::all_gather:
      return all_gather(by_rank, rank);
    case OpKind::reduce_scatter_sum:
      return reduce_scatter(by_rank, rank);
    case OpKind::all_to_all:
      return all_to_all(by_rank, rank);
    case OpKind::broadcast:
      return broadcast(by_rank, rank);
    case OpKind::barrier:
    case OpKind::send:
    case OpKind::recv:
      return;
  }
}

}  // namespace trireme
