#include "fabric/fabric.h"

#include <algorithm>
#include <numeric>

namespace trireme {
namespace {

// The base class does all the work of a group of one.
class SoloCommunicator : public Communicator {
 public:
  SoloCommunicator(std::string name, int global_rank)
      : Communicator(std::move(name), 0, {global_rank}, std::chrono::milliseconds(0)) {}
  ~SoloCommunicator() override { finish(); }

 private:
  void execute(const Call&) override { TRIREME_ASSERT(false, "a group of one has no peers"); }
  std::shared_ptr<Pending::State> transfer(Call) override {
    TRIREME_ASSERT(false, "a group of one has no peers");
    return nullptr;
  }
};

class SoloFabric : public Fabric {
 public:
  SoloFabric() : Fabric(0, 1) {}

 private:
  std::unique_ptr<Communicator> make_group(const std::string&, const std::string&,
                                           const std::vector<int>&, uint64_t) override {
    TRIREME_ASSERT(false, "a fabric of one rank has no larger group");
    return nullptr;
  }
};

}  // namespace

Fabric::~Fabric() = default;

Communicator& Fabric::world() {
  std::vector<int> members(static_cast<size_t>(ranks_));
  std::iota(members.begin(), members.end(), 0);
  return find_or_make("world", "world", std::move(members));
}

Communicator& Fabric::group(const Mesh& mesh, AxisSet axes) {
  TRIREME_CHECK(mesh.ranks() == ranks_, "groups of a mesh ", to_string(mesh), " of ", mesh.ranks(),
                " ranks, but the fabric has ", ranks_);
  const std::string name = to_string(axes);
  return find_or_make(name, concat(name, " of ", to_string(mesh)), mesh.group(axes, rank_));
}

Communicator& Fabric::find_or_make(const std::string& name, const std::string& key,
                                   std::vector<int> members) {
  std::unique_ptr<Communicator>& group = groups_[key];
  if (group) return *group;
  if (members.size() == 1) group = std::make_unique<SoloCommunicator>(name, rank_);
  else group = make_group(name, key, members, builds_++);
  return *group;
}

std::unique_ptr<Fabric> make_solo_fabric() { return std::make_unique<SoloFabric>(); }

}  // namespace trireme
