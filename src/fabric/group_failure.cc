#include "fabric/group_failure.h"

#include "fabric/communicator.h"

namespace trireme {
namespace {

std::string list(const std::vector<int>& ranks) {
  std::string text;
  for (int rank : ranks) text += concat(text.empty() ? "" : ", ", rank);
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return concat(ranks.size() == 1 ? "rank " : "ranks ", list(ranks));
}

double seconds(std::chrono::milliseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

void throw_failure(const std::string& group, const std::vector<int>& members,
                   const GroupFailure& failure, OpKind kind, uint64_t sequence) {
  const std::string operation(name_of(kind));
  const std::string where =
      concat(operation, " #", sequence, " in group ", group, " (ranks ", list(members), "): ");
  const bool outside = failure.operation.empty();
  const bool itself = outside || (failure.operation == operation && failure.sequence == sequence);
  const std::string text = itself ? where + failure.reason
                                  : concat(where, "the group is dead since ", failure.operation,
                                           " #", failure.sequence, ": ", failure.reason);
  throw FabricError(group, outside ? operation : failure.operation,
                    outside ? sequence : failure.sequence, failure.missing, text);
}

std::string ended_without_it(const std::vector<int>& ranks) {
  return concat(ranks_text(ranks), ranks.size() == 1 ? " has" : " have", " ended without it");
}

std::string did_not_arrive(const std::vector<int>& ranks, std::chrono::milliseconds timeout) {
  return concat(ranks_text(ranks), " did not arrive within ", seconds(timeout), " s");
}

std::string did_not_answer(OpKind kind, int partner, std::chrono::milliseconds timeout) {
  return concat("rank ", partner, " did not ", kind == OpKind::send ? "receive" : "send",
                " within ", seconds(timeout), " s");
}

}  // namespace trireme
