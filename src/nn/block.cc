#include "nn/block.h"

#include "base/error.h"

namespace trireme {

const at::Tensor& Context::at(std::string_view name) const {
  const auto found = batch.find(name);
  TRIREME_ASSERT(found != batch.end(), "the batch has no '", name, "'");
  return found->second;
}

Block::Block(std::string name, std::vector<WeightSpec> weights, std::vector<TiedWeight> tied)
    : name_(std::move(name)), weights_(std::move(weights)), tied_(std::move(tied)) {
  for (const WeightSpec& weight : weights_) {
    TRIREME_ASSERT(!weight.parts.empty(), name_);
    const Shape& first = weight.parts[0].shape;
    for (const ParameterSpec& part : weight.parts) {
      TRIREME_ASSERT(!part.shape.empty(), part.name, " has no dims");
      TRIREME_ASSERT(
          Shape(part.shape.begin() + 1, part.shape.end()) == Shape(first.begin() + 1, first.end()),
          part.name, " ", to_string(part.shape), " does not lie behind ", to_string(first));
    }
  }
}

}  // namespace trireme
