#include "nn/model.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace trireme {
namespace {

int64_t numel_of(const Block& block) {
  int64_t sum = 0;
  for (const WeightSpec& weight : block.weights())
    for (const ParameterSpec& part : weight.parts) sum += trireme::numel_of(part.shape);
  return sum;
}

}  // namespace

const Block& Model::block(std::string_view name) const {
  const auto at =
      std::ranges::find_if(nodes, [&](const ModelNode& n) { return n.block->name() == name; });
  TRIREME_ASSERT(at != nodes.end(), "no block '", name, "'");
  return *at->block;
}

int64_t Model::parameter_count() const {
  int64_t sum = 0;
  for (const ModelNode& node : nodes) sum += numel_of(*node.block);
  return sum;
}

double Model::forward_flops() const {
  double sum = 0;
  for (const ModelNode& node : nodes) sum += node.block->cost(4).forward_flops;
  return sum;
}

Graph graph_of(const Model& model, int64_t element_bytes, int64_t shards) {
  Graph graph;
  std::map<std::string, int32_t> unit_of, table_of;
  for (const ModelNode& node : model.nodes) {
    const Block& block = *node.block;
    GraphBlock entry{.name = block.name(),
                     .inputs = node.inputs,
                     .outputs = node.outputs,
                     .cost = block.cost(element_bytes),
                     .forward_adds = block.adds_gradients_in_forward()};
    if (!block.weights().empty()) {
      unit_of[block.name()] = static_cast<int32_t>(graph.units.size());
      entry.units.push_back(unit_of[block.name()]);
      const int64_t bytes = numel_of(block) * element_bytes;
      graph.units.push_back({block.name(), bytes, (bytes + shards - 1) / shards});
    }
    for (const TiedWeight& tied : block.tied()) {
      const auto owner = unit_of.find(tied.owner);
      TRIREME_ASSERT(owner != unit_of.end(), block.name(), " is tied to ", tied.owner,
                     ", which no earlier block is");
      if (std::ranges::find(entry.units, owner->second) == entry.units.end())
        entry.units.push_back(owner->second);
    }
    for (const std::string& table : node.tables) {
      const auto [at, fresh] =
          table_of.try_emplace(table, static_cast<int32_t>(graph.tables.size()));
      if (fresh) graph.tables.push_back(table);
      entry.tables.push_back(at->second);
    }
    graph.blocks.push_back(std::move(entry));
  }
  return graph;
}

}  // namespace trireme
