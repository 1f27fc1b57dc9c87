#include "nn/parts.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "kernel/activation.h"
#include "kernel/layer_norm.h"
#include "kernel/rms_norm.h"

namespace trireme {

const at::Tensor& WeightReader::next() {
  TRIREME_ASSERT(at_ < weights_.size(), "a block reads more weights than it declared");
  return weights_[at_++];
}

int64_t LinearSpec::width() const {
  int64_t sum = 0;
  for (const Output& output : outputs) sum += output.width;
  return sum;
}

void declare(const LinearSpec& spec, std::vector<WeightSpec>& weights) {
  const bool stands = spec.layout == kernel::WeightLayout::out_in;
  TRIREME_ASSERT(stands || spec.outputs.size() == 1);
  WeightSpec matrix, bias;
  for (const auto& [name, width] : spec.outputs) {
    matrix.parts.push_back({name + ".weight",
                            stands ? Shape{width, spec.inputs} : Shape{spec.inputs, width},
                            {Initial::Kind::normal, spec.init_std},
                            true});
    bias.parts.push_back({name + ".bias", {width}, {Initial::Kind::constant, 0}, false});
  }
  weights.push_back(std::move(matrix));
  if (spec.bias) weights.push_back(std::move(bias));
}

at::Tensor linear(const LinearSpec& spec, const at::Tensor& x, WeightReader& weights,
                  const Context& context, const kernel::Remake& x_again) {
  const at::Tensor& weight = weights.next();
  return kernel::linear(x, weight, context.mode, spec.bias ? weights.next() : at::Tensor(),
                        spec.layout, x_again);
}

void declare(const NormSpec& spec, std::vector<WeightSpec>& weights) {
  const auto vector = [&](const char* ending, double value) {
    weights.push_back(
        {{{spec.name + ending, {spec.width}, {Initial::Kind::constant, value}, false}}});
  };
  vector(".weight", 1 - spec.offset);
  if (spec.kind == NormSpec::Kind::layer) vector(".bias", 0);
}

Normed add_norm(const NormSpec& spec, const at::Tensor& residual,
                const std::optional<at::Tensor>& delta, WeightReader& weights,
                const Context& context) {
  const at::Tensor& weight = weights.next();
  const at::Tensor bias = spec.kind == NormSpec::Kind::layer ? weights.next() : at::Tensor();
  const auto norm = [kind = spec.kind, eps = spec.eps, offset = spec.offset, mode = context.mode](
                        const at::Tensor& x, const std::optional<at::Tensor>& added,
                        const at::Tensor& w, const at::Tensor& b) {
    return kind == NormSpec::Kind::layer ? kernel::add_layer_norm(x, added, w, b, eps, mode)
                                         : kernel::add_rms_norm(x, added, w, eps, mode, offset);
  };
  Normed normed;
  std::tie(normed.sum, normed.out) = norm(residual, delta, weight, bias);
  if (context.remake)
    normed.again = {{normed.sum, weight, bias}, [norm](const std::vector<at::Tensor>& from) {
                      return norm(from[0], std::nullopt, from[1], from[2]).second;
                    }};
  return normed;
}

void declare(const AttentionSpec& spec, std::vector<WeightSpec>& weights) {
  declare(spec.qkv, weights);
  if (spec.head_norm) {
    declare(spec.head_norm->query, weights);
    declare(spec.head_norm->key, weights);
  }
  declare(spec.out, weights);
}

at::Tensor attention(const AttentionSpec& spec, const at::Tensor& x, WeightReader& weights,
                     const Context& context, const kernel::Remake& x_again) {
  const kernel::Mode mode = context.mode;
  at::Tensor qkv = linear(spec.qkv, x, weights, context, x_again);  // [T, (N + 2K) D]
  if (spec.head_norm) {
    const at::Tensor& query = weights.next();
    const at::Tensor& key = weights.next();
    qkv = kernel::head_rms_norm(qkv, query, key, {spec.heads, spec.kv_heads, spec.head_dim},
                                spec.head_norm->query.eps, mode, spec.head_norm->query.offset);
  }
  kernel::AttentionShape shape{.batch = 1,
                               .sequence = qkv.size(0),
                               .heads = spec.heads,
                               .kv_heads = spec.kv_heads,
                               .head_dim = spec.head_dim,
                               .scale = spec.scale,
                               .window = spec.window,
                               .softcap = spec.softcap};
  const auto& positions = context.at("positions");
  at::Tensor attended;
  if (context.cache) {
    const auto& lengths = context.cache->lengths;
    shape.batch = lengths.size(0);
    shape.sequence = qkv.size(0) / shape.batch;
    attended = kernel::attention_cached(qkv, spec.rope.cos, spec.rope.sin, positions, lengths,
                                        context.cache->layers[spec.cache_layer], shape, mode);
  } else {
    const auto& documents = context.at("documents");  // [B, S]
    shape.batch = documents.size(0);
    shape.sequence = documents.size(1);
    attended =
        kernel::attention(qkv, spec.rope.cos, spec.rope.sin, positions, documents, shape, mode);
  }
  return linear(spec.out, attended, weights, context);
}

double attention_flops(const AttentionSpec& spec, int64_t sequence) {
  const double s = static_cast<double>(sequence);
  const double w = spec.window > 0 ? std::min(static_cast<double>(spec.window), s) : s;
  const double pairs = w * s - w * w / 2;  // s^2 / 2 without a window
  return 4 * pairs * static_cast<double>(spec.heads * spec.head_dim);
}

int64_t FeedForwardSpec::width() const { return unit == Unit::gelu ? in.width() : in.width() / 2; }

void declare(const FeedForwardSpec& spec, std::vector<WeightSpec>& weights) {
  declare(spec.in, weights);
  declare(spec.out, weights);
}

at::Tensor feed_forward(const FeedForwardSpec& spec, const at::Tensor& x, WeightReader& weights,
                        const Context& context, const kernel::Remake& x_again) {
  const auto act = [unit = spec.unit, mode = context.mode](const at::Tensor& in) {
    switch (unit) {
      case FeedForwardSpec::Unit::swiglu:
        return kernel::swiglu(in, mode);
      case FeedForwardSpec::Unit::geglu:
        return kernel::geglu(in, mode);
      case FeedForwardSpec::Unit::gelu:
        return kernel::gelu(in, mode);
    }
    return at::Tensor();
  };
  const at::Tensor in = linear(spec.in, x, weights, context, x_again);
  kernel::Remake again;
  if (context.remake)
    again = {{in}, [act](const std::vector<at::Tensor>& from) { return act(from[0]); }};
  return linear(spec.out, act(in), weights, context, again);
}

}  // namespace trireme
