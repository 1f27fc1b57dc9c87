// What is trained, on what, and how it is judged: the one place that knows what a sample is.
//
// The trainer sees numbered samples, weighted sums and named tensors. A task is immutable and
// serves every rank and lane at once; what a rank keeps and changes (row tables) it gets from
// make_tables().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/recipe/recipe.h"
#include "engine/executor.h"
#include "nn/model.h"
#include "state/checkpoint.h"
#include "state/store.h"
#include "train/metrics_file.h"
#include "train/report/report.h"

namespace trireme {

// The words in which a run speaks.
struct TaskWords {
  std::string unit;            // what throughput counts, in the plural: "tokens"
  std::string loss_unit;       // "nats per token"
  std::string subtitle;        // the run in a sentence
  std::string mfu_convention;  // how training FLOPs are counted; empty: MFU makes no sense here
  std::vector<HeldOutMetric> held_out;  // the first is the headline
  std::vector<Fact> model;
};

// Numbers of samples, [begin, end).
struct SampleRange {
  uint64_t begin = 0, end = 0;
};

// One evaluation, on one rank: sums in the order of add(), then over all ranks that hold data.
class Evaluation {
 public:
  virtual ~Evaluation() = default;
  // The micro-batches of one run, all of the set of this number.
  virtual void add(size_t set, const std::vector<Batch>& batches, const StepResult& result) = 0;
  virtual NamedValues finish(Communicator& data_ranks) = 0;
};

// The row tables of one rank.
class TableState : public RowTables {
 public:
  virtual void begin_step(int64_t step) = 0;
  virtual RowTables&
  reader() = 0;  // pulls of evaluation: an unknown key reads the default row, and nothing changes
  // Spans that live until the next call.
  virtual void add_to(std::vector<TensorChunk>& chunks) = 0;
  virtual void load(const Checkpoint& checkpoint) = 0;
  virtual std::vector<Fact> facts() const = 0;
};

// What writing samples of text needs of the trainer, on every rank alike.
struct RunningModel {
  Parameters& parameters;
  Lanes& lanes;
  RankGroups groups;
  kernel::Mode mode;
};

class Task {
 public:
  virtual ~Task() = default;

  virtual const Model& model() const = 0;
  virtual at::ScalarType dtype() const = 0;
  virtual const TaskWords& words() const = 0;
  virtual int64_t units_per_sample() const = 0;
  virtual double training_flops_per_sample() const = 0;

  // --- Training: samples 0, 1, 2, … without end.
  virtual uint64_t samples_per_epoch() const = 0;
  virtual Batch train_batch(uint64_t first, int64_t count) const = 0;
  virtual double weight_of(const Batch& batch) const = 0;  // what its sum of losses is divided by

  // --- Held-out samples: sets that are judged together, and where there are several also apart.
  virtual std::vector<SampleRange> held_out_sets() const = 0;
  // Samples from `end` on have no weight, so that ranks can take equal numbers of a set.
  virtual Batch held_out_batch(uint64_t first, int64_t count, uint64_t end) const = 0;
  virtual Want evaluation_wants() const = 0;
  virtual std::unique_ptr<Evaluation> begin_evaluation() const = 0;

  // --- For people. Empty by default.
  virtual std::vector<SampleText> write_samples(RunningModel model) const;

  // --- State.
  virtual const Checkpoint* start() const;  // the weights to begin with; null: initial values
  virtual std::unique_ptr<TableState> make_tables() const;  // null: none
  virtual Attachments attachments() const = 0;
};

// By the recipe's `task`. Opens or builds the data, with progress. InputError for whatever is wrong
// with either.
std::shared_ptr<const Task> make_task(const Recipe& recipe);

std::unique_ptr<Task> make_pretrain_task(const Recipe& recipe);
std::unique_ptr<Task> make_ctr_task(const Recipe& recipe);

}  // namespace trireme
