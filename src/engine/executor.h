// Runs step programs on one rank.
//
// Each lane runs its actions in the order of the list and waits for those of other lanes that
// `after` names. A slot is freed when its last reader is done, whichever that is. An exception on
// any lane ends the step on all of them (and, by the communicators, on the other ranks) and is
// rethrown; the executor is unusable afterwards.
//
// Numbers: gradients of micro-batches that share a lane are added in their order, lanes in lane
// order, ranks in rank order. So a step gives the same bits for the same number of lanes and ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/lanes.h"
#include "engine/parameters.h"
#include "kernel/work_time.h"
#include "nn/model.h"
#include "plan/program.h"

namespace trireme {

class Communicator;

// A sum and what it will be divided by, kept apart to the end.
struct WeightedSum {
  double sum = 0, weight = 0;
};
using LossSums = std::map<std::string, WeightedSum>;

// A contiguous range of what this rank owns of one parameter, for an optimizer.
struct UpdateRange {
  const ParameterSpec& parameter;
  size_t unit;
  int64_t begin, end;  // of the unit's shard
  at::Tensor value, gradient;
};

// How weights step. `update` is called by several lanes at once, on disjoint ranges.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  // The factor for all gradients, known once their norm is; called by one lane before any update of
  // the step. nullopt: leave this step out, on all ranks alike.
  virtual std::optional<double> gradient_scale(double norm, bool finite) = 0;
  virtual void update(const UpdateRange& range, double gradient_scale) = 0;
};

// The rows that blocks read, by table index. Pulls and pushes come from several lanes at once.
class RowTables {
 public:
  virtual ~RowTables() = default;
  virtual at::Tensor pull(int32_t table, int32_t micro,
                          const Batch& batch) = 0;  // [n, D], as the block reads it
  virtual void push(int32_t table, int32_t micro, const Batch& batch,
                    const at::Tensor& gradient) = 0;
  virtual void update(int32_t table) = 0;  // after all pushes of the step
};

struct RankGroups {
  Communicator* shard = nullptr;  // ranks that hold the other rows of the same weights; null: alone
  Communicator* replica = nullptr;  // ranks that hold the same rows; null: alone
};

struct StepInput {
  std::vector<Batch> micro_batches;
  double loss_seed = 1;  // 1 / the step's total weight
  Want want = Want::loss;
  GenerationCache* cache = nullptr;
};

// Where a step's time went: the mean over lanes, so that the parts add up to the duration of run().
struct StepTime {
  double gemm_seconds = 0, attention_seconds = 0;  // fused operators only (kernel/work_time.h)
  double other_compute_seconds = 0;                // the rest of forward, backward and rows
  double update_seconds = 0;                       // reducing over lanes, clipping, the optimizer
  double waiting_seconds = 0;                      // for other lanes and ranks
};

struct StepResult {
  LossSums losses;  // of this rank, added in the order of micro-batches
  double grad_norm = 0;
  bool grad_finite = true;
  bool updated = false;
  std::vector<std::map<std::string, at::Tensor>> results;  // of each micro-batch's last block
  double compute_seconds = 0, waiting_seconds = 0, update_seconds = 0;  // of lane 0
  StepTime time;
};

struct ExecutorOptions {
  kernel::Mode mode = kernel::Mode::fused;
  UpdateRule* rule = nullptr;   // REQUIRED if the program updates
  RowTables* tables = nullptr;  // REQUIRED if it pulls
  RankGroups groups;
  // Sees each action: when its lane turned to it, when it could start, when it was done. On the
  // action's lane.
  using Time = std::chrono::steady_clock::time_point;
  std::function<void(ActionId, Time turned, Time started, Time ended)> observe;
  // Sees every value that a block puts out; for finding where numbers stop being finite. Any lane.
  std::function<void(const std::string& block, const std::string& value, const at::Tensor&)>
      inspect;
};

class Executor {
 public:
  // All arguments outlive the executor. The program has been verified.
  Executor(const Model& model, Parameters& parameters, Lanes& lanes, StepProgram program,
           ExecutorOptions options);
  ~Executor();

  // InternalError unless the input has as many micro-batches as the program.
  StepResult run(const StepInput& input);

  const StepProgram& program() const { return program_; }

  // The whole step's gradient of a unit, of this rank's shard, from run() to the next one. Not
  // scaled by clipping.
  const at::Tensor& gradient(size_t unit) const { return reduced_.at(unit); }

 private:
  struct Tape;
  struct Part;  // of what this rank owns, for one lane to reduce and update

  void run_lane(int lane);
  void run_action(ActionId id);
  void account(int lane, ActionId id, double seconds, const kernel::WorkTime& before);
  void wait_for(ActionId id);
  void give_up();
  void free_slots_read_by(const Action& action);

  void gather(const Action& action);
  void release(const Action& action);
  void forward(const Action& action);
  void backward(const Action& action);
  void pull(const Action& action);
  void push(const Action& action);
  void reduce_part(const Action& action);
  void reduce_unit(ActionId id, const Action& action);
  void norm();
  void update(const Action& action);

  std::vector<at::Tensor> weights_for(const Action& action, bool with_gradients);
  void let_go_of_gradients(const Action& action);
  void give(SlotId slot, at::Tensor value, bool add);
  SlotKind kind_of(SlotId slot) const { return program_.slots[static_cast<size_t>(slot)].kind; }
  at::Tensor& slot(SlotId id) { return slots_[static_cast<size_t>(id)]; }

  const Model& model_;
  Parameters& parameters_;
  Lanes& lanes_;
  StepProgram program_;
  ExecutorOptions options_;

  // Follows from the program.
  std::vector<std::vector<ActionId>> lane_actions_;  // by lane, the communication lane last
  std::vector<int32_t> readers_;                     // by slot
  std::vector<ActionId> last_reduce_;                // by unit
  std::vector<std::vector<int32_t>>
      block_units_;          // whose gradients a block adds to, in the order of its `adds`
  std::vector<Part> parts_;  // by lane

  // Of the step that runs.
  const StepInput* input_ = nullptr;
  StepResult result_;
  uint32_t step_ = 0;
  std::atomic<bool> failed_ = false;
  std::vector<std::atomic<uint32_t>> done_;  // by action: the last step in which it was done
  std::vector<std::atomic<int32_t>> readers_left_;
  std::vector<at::Tensor> slots_;
  std::vector<std::unique_ptr<Tape>> tapes_;  // by slot
  std::vector<at::Tensor> reduced_;           // by unit, of this rank's shard
  std::vector<LossSums> losses_;              // by micro-batch
  std::vector<StepTime> times_;               // by lane; waiting is left out
  std::optional<double> scale_;
};

}  // namespace trireme
