#include "fabric/operation.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "fabric/dtype.h"
#include "fabric/reduce.h"
#include "fabric/share.h"
#include "layout/placement.h"

namespace trireme {
namespace {

constexpr std::array<std::string_view, kOpKinds> kNames = {"all_reduce_sum",
                                                           "all_reduce_max",
                                                           "all_gather",
                                                           "reduce_scatter_sum",
                                                           "all_to_all",
                                                           "broadcast",
                                                           "barrier",
                                                           "send",
                                                           "recv"};

void check_tensor(OpKind kind, const char* role, const at::Tensor& x) {
  TRIREME_CHECK(x.defined(), name_of(kind), ": ", role, " is no tensor");
  TRIREME_CHECK(x.device().is_cpu(), name_of(kind), ": ", role, " is on ", x.device().str(),
                ", expected cpu");
  TRIREME_CHECK(x.is_contiguous(), name_of(kind), ": ", role,
                " is not contiguous; a copy would not be seen by its owner");
  dtype_of(x.scalar_type());  // refuses what is never sent
}

void check_can_reduce(OpKind kind, const at::Tensor& x) {
  TRIREME_CHECK(can_reduce(dtype_of(x.scalar_type())), name_of(kind), ": elements of type ",
                name_of(dtype_of(x.scalar_type())), " cannot be reduced");
}

void check_same_type(OpKind kind, const at::Tensor& a, const at::Tensor& b) {
  TRIREME_CHECK(a.scalar_type() == b.scalar_type(), name_of(kind), ": from ",
                name_of(dtype_of(a.scalar_type())), " to ", name_of(dtype_of(b.scalar_type())),
                ", expected one type");
}

Operation in_place(OpKind kind, const at::Tensor& x, int peer = -1) {
  check_tensor(kind, "the tensor", x);
  Operation operation;
  operation.kind = kind;
  operation.input = operation.output = x;
  operation.peer = peer;
  return operation;
}

Operation over_segments(OpKind kind, const at::Tensor& input, const at::Tensor& output,
                        const SegmentMap& segments) {
  check_tensor(kind, "the input", input);
  check_tensor(kind, "the output", output);
  Operation operation;
  operation.kind = kind;
  operation.input = input;
  operation.output = output;
  operation.segments = segments;
  const at::Tensor& whole = kind == OpKind::all_gather ? output : input;
  TRIREME_CHECK(whole.numel() == segments.whole_numel(), name_of(kind),
                ": the segments are of a buffer of ", segments.whole_numel(),
                " elements, the whole tensor has ", whole.numel());
  return operation;
}

// Equal pieces, or those of the counts.
SegmentMap pieces(OpKind kind, const at::Tensor& piece, const at::Tensor& whole,
                  const std::vector<int64_t>& counts) {
  check_tensor(kind, "the piece", piece);
  check_tensor(kind, "the whole", whole);
  if (!counts.empty()) return SegmentMap::consecutive(counts);
  const int64_t ranks = piece.numel() > 0 ? whole.numel() / piece.numel() : 0;
  TRIREME_CHECK(ranks * piece.numel() == whole.numel(), name_of(kind), ": pieces of ",
                piece.numel(), " elements do not make up ", whole.numel());
  return SegmentMap::consecutive(std::vector<int64_t>(static_cast<size_t>(ranks), piece.numel()));
}

int64_t total(const std::vector<int64_t>& counts) {
  int64_t sum = 0;
  for (int64_t count : counts) sum += count;
  return sum;
}

void check_counts(const char* role, const std::vector<int64_t>& counts, const at::Tensor& x) {
  for (int64_t count : counts) TRIREME_CHECK(count >= 0, "all_to_all: ", role, " count ", count);
  TRIREME_CHECK(total(counts) == x.numel(), "all_to_all: ", role, " counts add up to ",
                total(counts), " elements, the tensor has ", x.numel());
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const auto* a_begin = static_cast<const std::byte*>(a.const_data_ptr());
  const auto* b_begin = static_cast<const std::byte*>(b.const_data_ptr());
  return a.nbytes() > 0 && b.nbytes() > 0 && a_begin < b_begin + b.nbytes() &&
         b_begin < a_begin + a.nbytes();
}

// A shard may lie within the whole buffer only where its one segment is.
void check_overlap(const Operation& operation, int rank) {
  const bool gather = operation.kind == OpKind::all_gather;
  const at::Tensor& whole = gather ? operation.output : operation.input;
  const at::Tensor& shard = gather ? operation.input : operation.output;
  if (!overlap(whole, shard)) return;
  int64_t next = -1;
  bool one_stretch = true;
  const auto* place = static_cast<const std::byte*>(shard.const_data_ptr());
  const auto* base = static_cast<const std::byte*>(whole.const_data_ptr());
  for (const Segment& segment : operation.segments.of(rank)) {
    if (segment.numel == 0) continue;
    one_stretch =
        one_stretch &&
        (next < 0 ? base + segment.offset * static_cast<int64_t>(whole.element_size()) == place
                  : next == segment.offset);
    next = segment.offset + segment.numel;
  }
  TRIREME_CHECK(one_stretch && whole.scalar_type() == shard.scalar_type(), name_of(operation.kind),
                ": the shard lies within the whole buffer, but not where the rank's segments are");
}

const at::Tensor& whole_of(const Operation& operation) {
  return operation.kind == OpKind::all_gather ? operation.output : operation.input;
}

bool has_segments(OpKind kind) {
  return kind == OpKind::all_gather || kind == OpKind::reduce_scatter_sum;
}

bool agree(const Signature& a, const Signature& b) {
  if (a.kind != b.kind || a.peer != b.peer) return false;
  if (a.in != b.in || a.out != b.out) return false;
  return a.kind == OpKind::all_to_all || a.numel == b.numel;
}

}  // namespace

std::string_view name_of(OpKind kind) { return kNames.at(static_cast<size_t>(kind)); }

namespace op {

Operation all_reduce_sum(const at::Tensor& x) {
  Operation operation = in_place(OpKind::all_reduce_sum, x);
  check_can_reduce(operation.kind, x);
  return operation;
}

Operation all_reduce_max(const at::Tensor& x) {
  Operation operation = in_place(OpKind::all_reduce_max, x);
  check_can_reduce(operation.kind, x);
  return operation;
}

Operation all_gather(const at::Tensor& piece, const at::Tensor& whole,
                     const std::vector<int64_t>& counts) {
  return all_gather_segments(piece, whole, pieces(OpKind::all_gather, piece, whole, counts));
}

Operation all_gather_segments(const at::Tensor& shard, const at::Tensor& whole,
                              const SegmentMap& segments) {
  Operation operation = over_segments(OpKind::all_gather, shard, whole, segments);
  check_same_type(operation.kind, shard, whole);
  return operation;
}

Operation reduce_scatter_sum(const at::Tensor& whole, const at::Tensor& piece,
                             const std::vector<int64_t>& counts) {
  return reduce_scatter_segments(whole, piece,
                                 pieces(OpKind::reduce_scatter_sum, piece, whole, counts));
}

Operation reduce_scatter_segments(const at::Tensor& whole, const at::Tensor& shard,
                                  const SegmentMap& segments, bool accumulate) {
  Operation operation = over_segments(OpKind::reduce_scatter_sum, whole, shard, segments);
  check_can_reduce(operation.kind, whole);
  const bool half = whole.element_size() == 2;
  if (!half || shard.scalar_type() != at::kFloat) check_same_type(operation.kind, whole, shard);
  operation.accumulate = accumulate;
  return operation;
}

Operation all_to_all(const at::Tensor& input, const at::Tensor& output,
                     std::vector<int64_t> send_counts, std::vector<int64_t> recv_counts) {
  check_tensor(OpKind::all_to_all, "the input", input);
  check_tensor(OpKind::all_to_all, "the output", output);
  check_same_type(OpKind::all_to_all, input, output);
  check_counts("send", send_counts, input);
  check_counts("receive", recv_counts, output);
  TRIREME_CHECK(!overlap(input, output), "all_to_all: input and output share memory");
  Operation operation;
  operation.kind = OpKind::all_to_all;
  operation.input = input;
  operation.output = output;
  operation.send_counts = std::move(send_counts);
  operation.recv_counts = std::move(recv_counts);
  return operation;
}

Operation broadcast(const at::Tensor& x, int root) { return in_place(OpKind::broadcast, x, root); }
Operation barrier() { return {}; }
Operation send(const at::Tensor& x, int to) { return in_place(OpKind::send, x, to); }
Operation recv(const at::Tensor& x, int from) { return in_place(OpKind::recv, x, from); }

}  // namespace op

Signature signature_of(const Operation& operation) {
  Signature signature{.kind = operation.kind, .peer = operation.peer};
  if (operation.kind == OpKind::barrier) return signature;
  signature.in = dtype_of(operation.input.scalar_type());
  signature.out = dtype_of(operation.output.scalar_type());
  signature.numel = whole_of(operation).numel();
  if (has_segments(operation.kind)) signature.segments_hash = operation.segments.hash();
  signature.send_counts = operation.send_counts;
  signature.recv_counts = operation.recv_counts;
  return signature;
}

std::string describe(const Signature& signature) {
  const std::string name(name_of(signature.kind));
  if (signature.kind == OpKind::barrier) return name;
  if (signature.kind == OpKind::all_to_all) return concat(name, " of ", name_of(signature.in));
  std::string text = concat(name, " of ", signature.numel, " ", name_of(signature.in));
  if (signature.in != signature.out) text += concat(" into ", name_of(signature.out));
  if (signature.kind == OpKind::broadcast) text += concat(" from group rank ", signature.peer);
  return text;
}

void check_fits(const Operation& operation, int rank, int size) {
  const auto name = name_of(operation.kind);
  switch (operation.kind) {
    case OpKind::all_gather:
    case OpKind::reduce_scatter_sum: {
      // A piece without elements cannot say how many ranks there are.
      const bool empty = operation.segments.whole_numel() == 0 && operation.segments.ranks() == 0;
      if (empty) return;
      TRIREME_CHECK(operation.segments.ranks() == size, name, ": pieces of ",
                    operation.segments.ranks(), " ranks in a group of ", size);
      const at::Tensor& shard =
          operation.kind == OpKind::all_gather ? operation.input : operation.output;
      TRIREME_CHECK(shard.numel() == operation.segments.numel_of(rank), name, ": the shard has ",
                    shard.numel(), " elements, the segments of group rank ", rank, " have ",
                    operation.segments.numel_of(rank));
      return check_overlap(operation, rank);
    }
    case OpKind::all_to_all:
      TRIREME_CHECK(static_cast<int>(operation.send_counts.size()) == size &&
                        static_cast<int>(operation.recv_counts.size()) == size,
                    name, ": counts for ", operation.send_counts.size(), " and from ",
                    operation.recv_counts.size(), " ranks in a group of ", size);
      return;
    case OpKind::send:
    case OpKind::recv:
      TRIREME_CHECK(operation.peer != rank, name, ": group rank ", rank, " with itself");
      [[fallthrough]];
    case OpKind::broadcast:
      TRIREME_CHECK(operation.peer >= 0 && operation.peer < size, name, ": group rank ",
                    operation.peer, " in a group of ", size);
      return;
    default:
      return;
  }
}

std::string disagreement(std::span<const Signature> by_rank, std::span<const int> global_ranks) {
  const Signature& first = by_rank[0];
  for (size_t r = 1; r < by_rank.size(); ++r) {
    const Signature& other = by_rank[r];
    if (!agree(first, other))
      return concat("rank ", global_ranks[0], " calls ", describe(first), ", rank ",
                    global_ranks[r], " calls ", describe(other));
    if (has_segments(first.kind) && first.segments_hash != other.segments_hash)
      return concat("ranks ", global_ranks[0], " and ", global_ranks[r], " call ", describe(first),
                    " with different segments");
  }
  if (first.kind != OpKind::all_to_all) return "";
  for (size_t from = 0; from < by_rank.size(); ++from)
    for (size_t to = 0; to < by_rank.size(); ++to)
      if (by_rank[from].send_counts[to] != by_rank[to].recv_counts[from])
        return concat("rank ", global_ranks[from], " sends ", by_rank[from].send_counts[to],
                      " elements to rank ", global_ranks[to], ", which expects ",
                      by_rank[to].recv_counts[from]);
  return "";
}

int64_t received_bytes(const Operation& operation, int rank, int size) {
  if (operation.kind == OpKind::barrier) return 0;
  const int64_t element = static_cast<int64_t>(operation.input.element_size());
  const int64_t numel = operation.input.numel();
  switch (operation.kind) {
    case OpKind::all_reduce_sum:
    case OpKind::all_reduce_max: {
      const int64_t piece = even_piece(numel, size, rank).size();
      return ((size - 1) * piece + numel - piece) * element;
    }
    case OpKind::all_gather:
      return (operation.segments.held_numel() - numel) * element;
    case OpKind::reduce_scatter_sum:
      return (size - 1) * operation.output.numel() * element;
    case OpKind::all_to_all:
      return (operation.output.numel() - operation.recv_counts[static_cast<size_t>(rank)]) *
             element;
    case OpKind::broadcast:
      return rank == operation.peer ? 0 : numel * element;
    case OpKind::recv:
      return numel * element;
    default:
      return 0;
  }
}

void execute_alone(const Operation& operation) {
  const Operation* only = &operation;
  execute_share({&only, 1}, 0);
}

}  // namespace trireme
