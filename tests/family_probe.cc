// What a test in Python cannot see from outside: logits, loss and every gradient of a model on a
// batch, and its weights after some steps of AdamW.
//
//   family_probe MODEL BATCH.safetensors OUT.safetensors fp32|fp64 STEPS
//
// MODEL is a Hugging Face directory. The batch holds int64 "tokens" and "labels" [B, S], int32
// "positions" and "documents" [B, S]. Out: "logits" [B * S, V], "loss" (the mean over labels),
// "gradient/NAME" and, after STEPS steps on this batch, "weight/NAME"; all in the given precision.
#include <cstdio>
#include <fstream>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>

#include "base/error.h"
#include "engine/executor.h"
#include "kernel/adamw.h"
#include "plan/builder.h"
#include "plan/verifier.h"
#include "state/hugging_face.h"
#include "state/safetensors.h"
#include "train/load_model.h"

namespace trireme {
namespace {

class AdamW final : public UpdateRule {
 public:
  explicit AdamW(const Parameters& parameters) {
    for (const Unit& unit : parameters.units()) {
      m_.push_back(at::zeros_like(unit.shard));
      v_.push_back(at::zeros_like(unit.shard));
    }
  }
  void begin_step() { ++step_.t; }
  std::optional<double> gradient_scale(double, bool) override { return 1.0; }
  void update(const UpdateRange& range, double) override {
    kernel::AdamWStep step = step_;
    step.weight_decay = range.parameter.decay ? 0.1 : 0;
    const int64_t numel = range.end - range.begin;
    at::Tensor value = range.value, m = m_[range.unit].narrow(0, range.begin, numel),
               v = v_[range.unit].narrow(0, range.begin, numel);
    kernel::adamw_(value, range.gradient, m, v, step, kernel::Mode::fused);
  }

 private:
  kernel::AdamWStep step_{.lr = 1e-3,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .weight_decay = 0,
                          .gradient_scale = 1,
                          .t = 0};
  std::vector<at::Tensor> m_, v_;
};

at::Tensor read(const Checkpoint& from, const char* name, at::ScalarType dtype) {
  const TensorRecord* record = from.find(name);
  TRIREME_CHECK(record, "the batch has no ", name);
  at::Tensor tensor = at::empty(record->shape, dtype);
  from.read(name, Slice::whole(record->shape), dtype == at::kLong ? DType::int64 : DType::int32,
            {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  return tensor;
}

class Output {
 public:
  explicit Output(at::ScalarType dtype) : dtype_(dtype) {}

  void add(const std::string& name, const at::Tensor& tensor) {
    tensors_.push_back(tensor.to(dtype_).contiguous().clone());
    SafetensorsEntry entry;
    entry.name = name;
    entry.dtype = dtype_ == at::kDouble ? DType::float64 : DType::float32;
    entry.shape = tensor.sizes().vec();
    entries_.push_back(std::move(entry));
  }

  void write(const std::string& path) {
    std::ofstream file(path, std::ios::binary);
    file << safetensors_head(entries_);
    for (const at::Tensor& tensor : tensors_)
      file.write(static_cast<const char*>(tensor.const_data_ptr()),
                 static_cast<std::streamsize>(tensor.nbytes()));
    TRIREME_CHECK(file.flush(), "cannot write ", path);
  }

 private:
  at::ScalarType dtype_;
  std::vector<SafetensorsEntry> entries_;
  std::vector<at::Tensor> tensors_;
};

void probe(const std::string& model_path, const std::string& batch_path,
           const std::string& out_path, bool fp64, int steps) {
  PosixStorage storage;
  const Checkpoint file = open_hugging_face(storage, batch_path);
  const at::Tensor tokens = read(file, "tokens", at::kLong);
  const int64_t rows = tokens.size(0), sequence = tokens.size(1);
  const at::Tensor labels = read(file, "labels", at::kLong).view(-1);
  Batch batch = {{"tokens", tokens.view(-1)},
                 {"labels", labels},
                 {"positions", read(file, "positions", at::kInt).view(-1)},
                 {"documents", read(file, "documents", at::kInt)}};
  LoadedModel loaded = load_model(model_path, sequence, 1, fp64 ? at::kDouble : at::kFloat);
  const Graph graph = graph_of(loaded.model, fp64 ? 8 : 4, 1);
  Output out(fp64 ? at::kDouble : at::kFloat);

  StepInput input{.micro_batches = {batch}, .want = Want::logits};
  Executor forward(loaded.model, *loaded.parameters, *loaded.lanes,
                   build_forward(graph, {.micro_samples = {rows}}), {});
  out.add("logits", forward.run(input).results[0].at("logits"));

  AdamW rule(*loaded.parameters);
  StepProgram program = build_training(graph, {.micro_samples = {rows}});
  verify(program, graph);
  Executor training(loaded.model, *loaded.parameters, *loaded.lanes, std::move(program),
                    {.rule = &rule});
  input.want = Want::loss;
  input.loss_seed = 1 / labels.ne(-100).sum().item<double>();
  const std::vector<Unit>& units = loaded.parameters->units();
  const auto each_piece = [&](const char* kind, const auto& flat_of) {
    for (size_t u = 0; u < units.size(); ++u)
      for (const Piece& piece : units[u].pieces)
        out.add(kind + piece.spec.name,
                flat_of(u).narrow(0, piece.shard_offset, piece.shard_numel).view(piece.spec.shape));
  };
  for (int step = 0; step < std::max(steps, 1); ++step) {
    rule.begin_step();
    const StepResult result = training.run(input);
    if (step > 0) continue;
    out.add("loss", at::full({1}, result.losses.at("loss").sum * input.loss_seed, at::kDouble));
    each_piece("gradient/", [&](size_t u) { return training.gradient(u); });
  }
  if (steps > 0) each_piece("weight/", [&](size_t u) { return units[u].shard; });
  out.write(out_path);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  if (argc != 6) return std::fprintf(stderr, "family_probe: see the head of its source\n"), 2;
  try {
    trireme::probe(argv[1], argv[2], argv[3], std::string_view(argv[4]) == "fp64",
                   std::atoi(argv[5]));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "family_probe: %s\n", error.what());
    return 1;
  }
}
