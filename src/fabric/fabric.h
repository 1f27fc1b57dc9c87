// One rank's view of a run: who it is, and the groups it belongs to.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fabric/communicator.h"
#include "layout/mesh.h"

namespace trireme {

struct FabricOptions {
  // Of an operation that names none. Ranks differ by as much as the slowest of them computes
  // between two operations.
  std::chrono::milliseconds timeout = std::chrono::seconds(120);
};

// Threads: one caller at a time, which need not be the one that uses the communicators.
class Fabric {
 public:
  virtual ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  int rank() const { return rank_; }  // global
  int ranks() const { return ranks_; }

  // All ranks, in order.
  Communicator& world();
  // The ranks that differ from this one along `axes`: Mesh::group(). Every rank asks for the same
  // groups in the same order; the first call builds, a later one returns the same object.
  // InputError if the mesh has another number of ranks; FabricError if the ranks ask in different
  // orders. Lives as long as the fabric.
  Communicator& group(const Mesh& mesh, AxisSet axes);

 protected:
  Fabric(int rank, int ranks) : rank_(rank), ranks_(ranks) {}

  // `members` has at least two ranks, this one among them. `key` names the group and its mesh;
  // `build` counts the groups that this rank has made, from 0: the key is the same on all ranks.
  virtual std::unique_ptr<Communicator> make_group(const std::string& name, const std::string& key,
                                                   const std::vector<int>& members,
                                                   uint64_t build) = 0;
  // A fabric's destructor calls it first.
  void drop_groups() { groups_.clear(); }

 private:
  Communicator& find_or_make(const std::string& name, const std::string& key,
                             std::vector<int> members);

  const int rank_, ranks_;
  uint64_t builds_ = 0;
  std::map<std::string, std::unique_ptr<Communicator>> groups_;
};

// A run of one rank: every group has one member.
std::unique_ptr<Fabric> make_solo_fabric();

}  // namespace trireme
