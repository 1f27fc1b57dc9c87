#include "model/logistic_regression.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/binary_cross_entropy_with_logits.h>

namespace trireme {
namespace {

// Shapes: B samples, F fields.
class LogisticRegression final : public Block {
 public:
  explicit LogisticRegression(int64_t fields)
      : Block("logistic regression", {{{{"bias", {1}, {Initial::Kind::constant, 0}, false}}}}),
        fields_(fields) {}

  BlockOutput forward(std::span<const at::Tensor> inputs, std::span<const at::Tensor> weights,
                      const Context& context) const override {
    const at::Tensor logits = inputs[0].view({-1, fields_}).sum(1).add(weights[0]);  // [B]
    BlockOutput out;
    if (context.want == Want::logits) out.results["logits"] = logits;
    const at::Tensor& weight = context.at("weights");
    const at::Tensor sum = at::binary_cross_entropy_with_logits(logits, context.at("labels"),
                                                                weight, {}, at::Reduction::Sum);
    out.losses.push_back({"loss", sum, weight.sum().item<double>()});
    return out;
  }

  BlockCost cost(int64_t element_bytes) const override { return {0, 0, 4 * element_bytes}; }

 private:
  int64_t fields_;
};

}  // namespace

Model make_logistic_regression(int64_t fields) {
  Model model;
  model.nodes.push_back({std::make_unique<LogisticRegression>(fields), {}, {}, {"ids"}});
  return model;
}

}  // namespace trireme
