// The block: the unit of sharding, recomputation, scheduling, cost and execution.
//
// A block is a function of named values, of its weights and of a context; it holds no state, so
// several lanes run it at once. The executor gives it weights as leaves whose grad() is set, seeds
// the gradients of its outputs and losses, and keeps its autograd graph from one forward to one
// backward: a graph never spans two blocks.
//
// Names: a parameter is what a checkpoint holds, under Hugging Face's name where one exists. A
// weight is what an operator multiplies with: one parameter, or several that lie one behind the
// other in dim 0 (q|k|v, gate|up).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kernel/attention.h"
#include "kernel/mode.h"
#include "layout/slice.h"
#include "plan/graph.h"

namespace trireme {

// The value of each element is a function of (seed, parameter name, global index) alone.
struct Initial {
  enum class Kind { constant, normal } kind = Kind::constant;
  double value = 0;  // the constant, or the standard deviation of N(0, value^2)
};

struct ParameterSpec {
  std::string name;  // global and unique in the model
  Shape shape;       // global
  Initial initial;
  bool decay = true;  // weight decay applies
};

struct WeightSpec {
  std::vector<ParameterSpec> parts;  // one behind the other in dim 0, of equal inner dims
};

// A weight that another block owns. Its gradients are summed before the norm.
struct TiedWeight {
  std::string owner;   // the owning block's name
  int64_t weight = 0;  // index among the owner's weights
};

// Part of a loss: sum is a tensor without dims that autograd can follow, weight what it will be
// divided by once all ranks' and micro-batches' sums are known.
struct Loss {
  std::string name;
  at::Tensor sum;
  double weight = 0;
  double coefficient = 1;
};

// What a forward-only run wants of the last block.
enum class Want {
  loss,    // its losses
  logits,  // result "logits": language models [T, V], of the batch's "rows" only if it names some;
           // click models [B]
  log_probs,  // result "log_probs" [T]: natural log of the probability of each label
};

struct BlockOutput {
  std::vector<at::Tensor> values;  // the declared outputs, in order
  std::vector<Loss> losses;
  std::map<std::string, at::Tensor> results;  // what leaves the program besides
};

using Batch =
    std::map<std::string, at::Tensor, std::less<>>;  // what a task's data function gives, by name

// What was read so far of the sequences that are being generated.
struct GenerationCache {
  std::vector<kernel::KeyValueCache> layers;
  at::Tensor lengths;  // int64 [B], of what is cached
};

// What every rank builds from the data function, and nobody sends.
struct Context {
  const Batch& batch;
  kernel::Mode mode = kernel::Mode::fused;
  bool remake = false;  // backward makes norms and activations again instead of keeping them
  Want want = Want::loss;
  double loss_seed =
      1;  // the gradient that a loss's sum receives, before its coefficient: 1 / weight
  GenerationCache* cache = nullptr;  // generation: keys and values of earlier tokens
  const at::Tensor& at(
      std::string_view name) const;  // of the batch; InternalError if it is not there
};

class Block {
 public:
  Block(std::string name, std::vector<WeightSpec> weights, std::vector<TiedWeight> tied = {});
  virtual ~Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<WeightSpec>& weights() const { return weights_; }
  const std::vector<TiedWeight>& tied() const { return tied_; }

  // `weights`: its own in order, then the tied ones. Threads: any number at once. Values that it
  // returns may alias its inputs, never its weights.
  virtual BlockOutput forward(std::span<const at::Tensor> inputs,
                              std::span<const at::Tensor> weights,
                              const Context& context) const = 0;

  // Of one sample, for an element type of this many bytes.
  virtual BlockCost cost(int64_t element_bytes) const = 0;

  // True if a forward that keeps its graph adds to the weights' gradients already (a fused loss).
  virtual bool adds_gradients_in_forward() const { return false; }

 private:
  std::string name_;
  std::vector<WeightSpec> weights_;
  std::vector<TiedWeight> tied_;
};

}  // namespace trireme
