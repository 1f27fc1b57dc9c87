// The task `ctr`: click prediction from ids, whose weights are rows of a table.
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "data/clicks/clicks.h"
#include "fabric/communicator.h"
#include "metric/click_metrics.h"
#include "model/logistic_regression.h"
#include "sparse/row_table.h"
#include "train/task.h"

// Shapes: B samples, F fields, n = B * F ids.

namespace trireme {
namespace {

std::span<const int64_t> ids_of(const Batch& batch) {
  const at::Tensor& ids = batch.at("ids");
  return {ids.const_data_ptr<int64_t>(), static_cast<size_t>(ids.numel())};
}

std::span<float> values_of(const at::Tensor& x) {
  return {x.mutable_data_ptr<float>(), static_cast<size_t>(x.numel())};
}

// One table, "ids". A table has one writer: pulls take turns, pushes wait for the update, which
// adds them in the order of micro-batches. So rows have the same bits for any number of lanes.
class ClickTables final : public TableState {
 public:
  ClickTables(RowTableOptions options, at::ScalarType dtype)
      : table_(std::move(options)), dtype_(dtype), reader_(*this) {}

  void begin_step(int64_t step) override {
    step_ = step;
    table_.set_version(static_cast<RowVersion>(step));
    pending_.clear();
  }

  at::Tensor pull(int32_t, int32_t micro, const Batch& batch) override {
    const auto ids = ids_of(batch);
    const at::Tensor rows = at::empty({static_cast<int64_t>(ids.size()), table_.dim()}, at::kFloat);
    const std::lock_guard lock(mutex_);
    Pending& pending = pending_[micro];
    table_.pull(ids, {.event_time = step_}, values_of(rows), pending.lookup);
    return rows.to(dtype_);
  }

  void push(int32_t, int32_t micro, const Batch&, const at::Tensor& gradient) override {
    const std::lock_guard lock(mutex_);
    pending_.at(micro).gradient = gradient.to(at::kFloat).contiguous();
  }

  void update(int32_t) override {
    for (const auto& [micro, pending] : pending_)
      table_.push(pending.lookup, values_of(pending.gradient), 1);
    if (std::isfinite(table_.pending_squared_norm())) table_.update(1);
    else table_.drop_pending();
    pending_.clear();
  }

  RowTables& reader() override { return reader_; }

  void add_to(std::vector<TensorChunk>& chunks) override {
    saved_ = table_.changed_since(0);
    for (const RowTensor& tensor : tensors_of(saved_))
      chunks.push_back({concat("table/ids/", tensor.name), "rows", tensor.dtype, tensor.shape,
                        Slice::whole(tensor.shape), tensor.bytes});
  }

  void load(const Checkpoint& checkpoint) override {
    RowBatch batch;
    batch.optimizer = kind_of(table_.options().optimizer);
    batch.dim = table_.dim();
    batch.moments = moments_of(table_.options().optimizer);
    const auto count = [&](const char* name) {
      const TensorRecord* record = checkpoint.find(name);
      return record ? record->shape.at(0) : 0;
    };
    batch.resize(count("table/ids/key"), count("table/ids/erased_key"));
    for (const RowTensor& tensor : tensors_of(batch))
      if (numel_of(tensor.shape) > 0)
        checkpoint.read(concat("table/ids/", tensor.name), Slice::whole(tensor.shape), tensor.dtype,
                        tensor.bytes);
    table_.apply(batch);
  }

  std::vector<Fact> facts() const override {
    return {{"table ids", concat("rows of ", table_.dim(), " weights, by id")}};
  }

 private:
  struct Pending {
    RowLookup lookup;
    at::Tensor gradient;
  };

  class Reader final : public RowTables {
   public:
    explicit Reader(ClickTables& tables) : tables_(tables) {}
    at::Tensor pull(int32_t, int32_t, const Batch& batch) override {
      const auto ids = ids_of(batch);
      const at::Tensor rows =
          at::empty({static_cast<int64_t>(ids.size()), tables_.table_.dim()}, at::kFloat);
      RowLookup lookup;
      tables_.table_.peek(ids, 1, values_of(rows), lookup);
      return rows.to(tables_.dtype_);
    }
    void push(int32_t, int32_t, const Batch&, const at::Tensor&) override {
      TRIREME_ASSERT(false, "a reader pushes");
    }
    void update(int32_t) override { TRIREME_ASSERT(false, "a reader updates"); }

   private:
    ClickTables& tables_;
  };

  RowTable table_;
  at::ScalarType dtype_;
  Reader reader_;
  int64_t step_ = 0;
  std::mutex mutex_;                    // guards table_ in pull(), and pending_
  std::map<int32_t, Pending> pending_;  // by micro-batch
  RowBatch saved_;
};

class ClickEvaluation final : public Evaluation {
 public:
  void add(size_t, const std::vector<Batch>& batches, const StepResult& result) override {
    for (size_t i = 0; i < batches.size(); ++i) {
      const at::Tensor logits = result.results[i].at("logits").to(at::kDouble).contiguous();
      const at::Tensor labels = batches[i].at("labels").to(at::kDouble).contiguous();
      const at::Tensor weights = batches[i].at("weights").to(at::kDouble).contiguous();
      for (int64_t j = 0; j < logits.numel(); ++j)
        if (weights.const_data_ptr<double>()[j] > 0)
          metrics_.add(1 / (1 + std::exp(-logits.const_data_ptr<double>()[j])),
                       labels.const_data_ptr<double>()[j] > 0.5);
    }
  }

  NamedValues finish(Communicator& data_ranks) override {
    TRIREME_ASSERT(data_ranks.size() == 1, "click metrics of several ranks");
    return {{"auc", metrics_.auc()},
            {"logloss", metrics_.log_loss()},
            {"normalized_entropy", metrics_.normalized_entropy()},
            {"calibration", metrics_.calibration()}};
  }

 private:
  ClickMetrics metrics_;
};

class Ctr final : public Task {
 public:
  explicit Ctr(const Recipe& recipe)
      : dtype_(recipe.text("precision.compute") == "fp64" ? at::kDouble : at::kFloat),
        fields_(recipe.integer("data.fields")),
        clicks_({.fields = fields_,
                 .ids = recipe.integer("data.ids"),
                 .seed = static_cast<uint64_t>(recipe.integer("run.seed"))}),
        model_(make_logistic_regression(fields_)),
        seed_(static_cast<uint64_t>(recipe.integer("run.seed"))),
        optimizer_(make_row_optimizer(recipe.text("table.optimizer.kind"),
                                      {{"lr", recipe.number("table.optimizer.lr")}})) {
    for (const char* axis : {"layout.replica", "layout.shard"})
      TRIREME_CHECK(recipe.integer(axis) == 1, recipe.where(axis),
                    ": the family lr keeps its table on one rank; ", axis, " must be 1, got ",
                    recipe.integer(axis));
    const std::vector<Record> sources = recipe.records("data.source");
    TRIREME_CHECK(sources.size() == 1 && sources[0].text("path") == "generated-clicks",
                  recipe.where("data.source"), ": expected [\"generated-clicks\"]");
    const int64_t rows = recipe.integer("data.rows");
    held_out_ = static_cast<uint64_t>(
        std::llround(recipe.number("data.held_out") * static_cast<double>(rows)));
    train_ = static_cast<uint64_t>(rows) - held_out_;
    TRIREME_CHECK(train_ > 0, recipe.where("data.rows"), ": no row is left to train on");
    if (recipe.has("eval.max_samples") && recipe.integer("eval.max_samples") > 0)
      judged_ =
          std::min<uint64_t>(held_out_, static_cast<uint64_t>(recipe.integer("eval.max_samples")));
    else judged_ = held_out_;
    words_ = {
        .unit = "samples",
        .loss_unit = "nats per sample",
        .subtitle = "A logistic regression on generated clicks, whose true weights are known.",
        .held_out = {{"auc", "AUC", true},
                     {"logloss", "log-loss"},
                     {"normalized_entropy", "normalized entropy"},
                     {"calibration", "calibration"}},
        .model = {{"family", "lr"},
                  {"fields", concat(fields_)},
                  {"distinct ids a field",
                   format_count(static_cast<uint64_t>(recipe.integer("data.ids")))},
                  {"training samples", format_count(train_)},
                  {"held-out samples", format_count(judged_)}}};
  }

  const Model& model() const override { return model_; }
  at::ScalarType dtype() const override { return dtype_; }
  const TaskWords& words() const override { return words_; }
  int64_t units_per_sample() const override { return 1; }
  double training_flops_per_sample() const override { return 0; }

  uint64_t samples_per_epoch() const override { return train_; }
  // The log in its order; a second epoch reads it again.
  Batch train_batch(uint64_t first, int64_t count) const override {
    return batch(count, [&](int64_t i) {
      return std::optional((first + static_cast<uint64_t>(i)) % train_);
    });
  }
  double weight_of(const Batch& batch) const override {
    return batch.at("weights").sum().item<double>();
  }

  std::vector<SampleRange> held_out_sets() const override {
    return judged_ > 0 ? std::vector<SampleRange>{{0, judged_}} : std::vector<SampleRange>();
  }
  Batch held_out_batch(uint64_t first, int64_t count, uint64_t end) const override {
    return batch(count, [&](int64_t i) -> std::optional<uint64_t> {
      const uint64_t at = first + static_cast<uint64_t>(i);
      return at < end ? std::optional(train_ + at) : std::nullopt;
    });
  }
  Want evaluation_wants() const override { return Want::logits; }
  std::unique_ptr<Evaluation> begin_evaluation() const override {
    return std::make_unique<ClickEvaluation>();
  }

  std::unique_ptr<TableState> make_tables() const override {
    return std::make_unique<ClickTables>(
        RowTableOptions{.name = "ids",
                        .dim = 1,
                        .seed = seed_,
                        .optimizer = optimizer_,
                        .first = {.kind = FirstWeights::Kind::zeros}},
        dtype_);
  }
  Attachments attachments() const override { return {}; }

 private:
  // number(i): which row of the log is sample i; nullopt: one without weight.
  template <class F>
  Batch batch(int64_t count, F number) const {
    at::Tensor ids = at::zeros({count * fields_}, at::kLong);
    at::Tensor labels = at::zeros({count}, at::kDouble), weights = at::zeros({count}, at::kDouble);
    for (int64_t i = 0; i < count; ++i) {
      const std::optional<uint64_t> row = number(i);
      if (!row) continue;
      const ClickSample sample = clicks_.click(*row);
      // Fields share the table: an id belongs to its field, so the field is part of the key.
      for (int64_t f = 0; f < fields_; ++f)
        ids.mutable_data_ptr<int64_t>()[i * fields_ + f] = static_cast<int64_t>(
            mix64(static_cast<uint64_t>(sample.ids[static_cast<size_t>(f)]) * 0x10001 +
                  static_cast<uint64_t>(f)));
      labels.mutable_data_ptr<double>()[i] = static_cast<double>(sample.label);
      weights.mutable_data_ptr<double>()[i] = 1;
    }
    return {{"ids", ids}, {"labels", labels.to(dtype_)}, {"weights", weights.to(dtype_)}};
  }

  at::ScalarType dtype_;
  int64_t fields_;
  Clicks clicks_;
  Model model_;
  uint64_t seed_, train_ = 0, held_out_ = 0, judged_ = 0;
  RowOptimizer optimizer_;
  TaskWords words_;
};

}  // namespace

std::unique_ptr<Task> make_ctr_task(const Recipe& recipe) { return std::make_unique<Ctr>(recipe); }

}  // namespace trireme
