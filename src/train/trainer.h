// The training loop of one rank.
//
// A step: the samples' numbers from the data position, batches from the task, their total weight
// over all ranks, the step program, metrics. Everything in between (evaluation, texts, checkpoints)
// happens at whole steps. Rank 0 writes what a run leaves behind; all ranks make the same calls in
// the same order.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/recipe/recipe.h"
#include "fabric/fabric.h"
#include "kernel/allocator.h"
#include "train/ledger.h"
#include "train/optimizer.h"
#include "train/run_directory.h"
#include "train/saving.h"
#include "train/schedule.h"
#include "train/task.h"
#include "train/tensorboard.h"
#include "train/trace.h"

namespace trireme {

// What ranks of a process share.
struct Job {
  Recipe recipe;
  std::shared_ptr<const Task> task;
  Mesh mesh;
  int lanes = 1;                                         // of a rank
  const kernel::CountingAllocator* allocator = nullptr;  // null: memory is not counted
  std::function<int()> signal;                           // 0, or the signal that asks for an end
  int64_t trace_steps = 0;                               // steps to write a trace of
  // Hears what a rank is about to do, for whoever tells why it ended; may be null.
  std::function<void(const std::string&)> activity;
  std::chrono::steady_clock::time_point process_start;
};

// How a program for this job is built: of rank 0, for --dry-run, and of any.
StepProgram training_program(const Job& job, const Graph& graph);
Graph training_graph(const Job& job);

enum class Ending { finished, stopped };

class Trainer {
 public:
  // `directory` is null on ranks that write nothing but their parts of checkpoints; `checkpoints`
  // is known to all.
  Trainer(const Job& job, Fabric& fabric, const RunDirectory* directory, fs::path checkpoints);
  ~Trainer();

  // Initial values, or those of the model to start from, or the newest checkpoint that can be read
  // when `resume`.
  void prepare(bool resume);

  // To the last step, or to the end of the step during which a signal came; either way with a
  // checkpoint. RunError if a loss or gradient stops being finite: the message names the first bad
  // tensor, and the last checkpoint stays.
  Ending run();

  // What the report says of the run; complete after prepare().
  const ReportFacts& facts() const { return facts_; }
  Ledger* ledger() { return ledger_.get(); }

  // One step alone, without metrics, evaluation or checkpoints.
  struct StepOutcome {
    double loss = 0, grad_norm = 0;
    StepTime time = {};
  };
  StepOutcome step();
  const Parameters& parameters() const { return parameters_; }
  const at::Tensor& gradient(size_t unit) const {
    return training_->gradient(unit);
  }  // of the last step, not clipped

 private:
  void record(const StepOutcome& outcome, double seconds);
  void evaluate();
  void save();
  std::unique_ptr<Ledger::Scope> in(
      Bucket bucket);  // charges time to it; null where there is no ledger
  bool asked_to_stop();
  void about_to(const char* what) const;
  StepOutcome traced_step();
  void write_trace() const;
  void fail_not_finite(const StepInput& input, const StepResult& result, double loss);
  std::string first_not_finite(const StepInput& input);
  std::vector<Batch> micro_batches() const;
  void fill_facts();
  RunningModel running_model() { return {parameters_, lanes_, groups_, mode_}; }
  TrainingState state() { return {parameters_, optimizer_.get(), tables_.get()}; }

  const Job& job_;
  Fabric& fabric_;
  const RunDirectory* directory_;
  fs::path checkpoints_;
  PosixStorage storage_;
  kernel::Mode mode_;
  Communicator& data_ranks_;
  int data_rank_;
  int64_t batch_size_, steps_;
  kernel::MemoryScope memory_scope_;
  Lanes lanes_;
  RankGroups groups_;
  Parameters parameters_;
  std::unique_ptr<DenseOptimizer> optimizer_;
  std::unique_ptr<TableState> tables_;
  std::unique_ptr<Trace> trace_;  // null: none was asked for
  bool tracing_ = false;
  std::unique_ptr<Executor> training_, evaluation_;
  Graph graph_;
  Schedule schedule_;
  Position position_;
  std::string parent_;  // the checkpoint that the run resumed from
  int64_t saved_step_ = -1, evaluated_step_ = -1;
  double peak_flops_ = 0;
  NamedValues last_evaluation_;
  ReportFacts facts_;

  // Rank 0 only.
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<MetricsFile> metrics_;
  std::unique_ptr<TensorBoardWriter> events_;
  std::unique_ptr<class Progress> progress_;
};

}  // namespace trireme
