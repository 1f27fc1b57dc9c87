// A model: blocks in an order in which they can run, and the values between them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nn/block.h"

namespace trireme {

struct ModelNode {
  std::unique_ptr<Block> block;
  std::vector<std::string> inputs, outputs;  // names of values
  std::vector<std::string> tables;  // whose pulled rows are further inputs, behind the values
};

struct Model {
  std::vector<ModelNode> nodes;

  const Block& block(std::string_view name) const;  // InternalError if there is none
  int64_t parameter_count() const;                  // a tied weight counts once
  double forward_flops() const;                     // of one sample's matrix products
};

// The model as the plan sees it: its blocks, units and costs. Unit u belongs to the u-th block that
// owns weights. A shard is one of `shards` near-equal parts.
Graph graph_of(const Model& model, int64_t element_bytes, int64_t shards);

}  // namespace trireme
