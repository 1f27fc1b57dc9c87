// Small models with random inputs, and training steps of them on any layout: what the tests of
// this folder share.
#pragma once

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/random.h"
#include "engine/executor.h"
#include "fabric/thread_fabric.h"
#include "model/language_model.h"
#include "plan/builder.h"
#include "plan/verifier.h"

namespace trireme {

// A config.json of a small model of any family: 2 layers, or 3 with two local ones.
inline nlohmann::json tiny_config(const std::string& model_type, bool tied) {
  const nlohmann::json shared = {{"model_type", model_type},
                                 {"vocab_size", 61},          // odd, so that shards are ragged
                                 {"initializer_range", 0.3},  // far from uniform
                                 {"tie_word_embeddings", tied}};
  nlohmann::json config = {{"hidden_size", 24},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"head_dim", 6},
                           {"intermediate_size", 37},
                           {"max_position_embeddings", 16}};
  if (model_type == "gpt2")
    config = {{"n_embd", 24}, {"n_layer", 2}, {"n_head", 4}, {"n_inner", 37}, {"n_positions", 16}};
  if (model_type == "mistral") config["sliding_window"] = 4;
  if (model_type.starts_with("gemma")) {
    config["num_hidden_layers"] = 3;
    config["sliding_window"] = 4;
    config["sliding_window_pattern"] = 3;
    config["query_pre_attn_scalar"] = 5;
  }
  if (model_type == "gemma2") {
    config.erase("sliding_window_pattern");
    config["final_logit_softcapping"] = 3.0;
    config["attn_logit_softcapping"] = 2.0;
  }
  config.update(shared);
  return config;
}

inline std::unique_ptr<LanguageModel> tiny_llama(bool tied) {
  return load_language_model(tiny_config("llama", tied), "tiny");
}

// Samples [first, first + count): two documents each, the second label of each sample left out.
inline Batch tiny_batch(int64_t vocab, int64_t sequence, uint64_t first, int64_t count) {
  const RandomStream ids(5, "test tokens");
  at::Tensor tokens = at::empty({count * sequence}, at::kLong),
             labels = at::empty({count * sequence}, at::kLong);
  at::Tensor positions = at::empty({count * sequence}, at::kInt),
             documents = at::empty({count, sequence}, at::kInt);
  for (int64_t i = 0; i < count * sequence; ++i) {
    const uint64_t global = first * static_cast<uint64_t>(sequence) + static_cast<uint64_t>(i);
    const int64_t place = i % sequence,
                  cut = sequence / 3 +
                        static_cast<int64_t>((global / static_cast<uint64_t>(sequence)) % 3);
    tokens.mutable_data_ptr<int64_t>()[i] =
        static_cast<int64_t>(ids.below(global, static_cast<uint64_t>(vocab)));
    labels.mutable_data_ptr<int64_t>()[i] =
        place == 1 || place == cut - 1
            ? -100
            : static_cast<int64_t>(ids.below(global + 1, static_cast<uint64_t>(vocab)));
    positions.mutable_data_ptr<int32_t>()[i] =
        static_cast<int32_t>(place < cut ? place : place - cut);
    documents.mutable_data_ptr<int32_t>()[i] = place < cut ? 0 : 1;
  }
  return {
      {"tokens", tokens}, {"labels", labels}, {"positions", positions}, {"documents", documents}};
}

// Plain gradient descent: p -= 0.1 g.
class PlainDescent final : public UpdateRule {
 public:
  std::optional<double> gradient_scale(double, bool) override { return 1.0; }
  void update(const UpdateRange& range, double scale) override {
    range.value.sub_(range.gradient, 0.1 * scale);
  }
};

struct TinyLayout {
  int replica = 1, shard = 1, lanes = 1;
  int64_t micro = 8;  // samples of a micro-batch
  Recompute recompute = Recompute::none;
  kernel::Mode mode = kernel::Mode::fused;
};

struct TinyNumbers {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> gradients, weights;  // global; gradients of the first step
};

inline TinyNumbers run_tiny(const LanguageModel& family, at::ScalarType dtype,
                            const TinyLayout& layout, int steps = 2) {
  constexpr int64_t kSequence = 9, kBatch = 8;
  const Model model = family.build(dtype, kSequence);
  const Mesh mesh({.replica = layout.replica, .shard = layout.shard});
  TinyNumbers numbers;
  std::mutex mutex;
  run_ranks(mesh.ranks(), [&](Fabric& fabric) {
    Communicator& data = fabric.group(mesh, {Axis::replica, Axis::shard});
    RankGroups groups;
    if (layout.shard > 1) groups.shard = &fabric.group(mesh, {Axis::shard});
    if (layout.replica > 1) groups.replica = &fabric.group(mesh, {Axis::replica});
    Parameters parameters(model, dtype, mesh, fabric.rank(), layout.shard > 1, layout.lanes);
    parameters.initialize(3, 1);
    Lanes lanes(layout.lanes, mesh.ranks() > 1, nullptr);
    PlainDescent rule;
    const int64_t share = kBatch / mesh.ranks();
    TrainingPlan plan{.lanes = layout.lanes,
                      .sharded = layout.shard > 1,
                      .reduce_between_ranks = mesh.ranks() > 1,
                      .recompute = layout.recompute};
    for (int64_t done = 0; done < share; done += layout.micro)
      plan.micro_samples.push_back(std::min(layout.micro, share - done));
    const Graph graph = graph_of(model, 8, layout.shard);
    StepProgram program = build_training(graph, plan);
    verify(program, graph);
    Executor executor(model, parameters, lanes, program,
                      {.mode = layout.mode, .rule = &rule, .groups = groups});
    for (int step = 0; step < steps; ++step) {
      StepInput input;
      double valid[] = {0};
      auto first = static_cast<uint64_t>(step * kBatch + fabric.rank() * share);
      for (int64_t count : plan.micro_samples) {
        input.micro_batches.push_back(tiny_batch(family.vocab(), kSequence, first, count));
        valid[0] += static_cast<double>(
            input.micro_batches.back().at("labels").ge(0).sum().item<int64_t>());
        first += static_cast<uint64_t>(count);
      }
      data.all_reduce_sum(valid);
      input.loss_seed = 1 / valid[0];
      const StepResult result = executor.run(input);
      double loss[] = {result.losses.at("loss").sum};
      data.all_reduce_sum(loss);
      const std::lock_guard lock(mutex);
      if (fabric.rank() == 0) {
        numbers.losses.push_back(loss[0] / valid[0]);
        numbers.norms.push_back(result.grad_norm);
      }
      const auto collect = [&](std::map<std::string, at::Tensor>& into, const Unit& unit,
                               const at::Tensor& flat) {
        for (const Piece& piece : unit.pieces) {
          at::Tensor& whole =
              into.try_emplace(piece.spec.name, at::zeros(piece.spec.shape, at::kDouble))
                  .first->second;
          const Range rows = piece.slice.dims[0][0];
          whole.narrow(0, rows.begin, rows.size())
              .view({-1})
              .copy_(flat.narrow(0, piece.shard_offset, piece.shard_numel));
        }
      };
      for (size_t u = 0; u < parameters.units().size(); ++u) {
        if (step == 0) collect(numbers.gradients, parameters.units()[u], executor.gradient(u));
        if (step == steps - 1)
          collect(numbers.weights, parameters.units()[u], parameters.units()[u].shard);
      }
    }
  });
  return numbers;
}

}  // namespace trireme
