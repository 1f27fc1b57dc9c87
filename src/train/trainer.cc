#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "base/error.h"
#include "base/log.h"
#include "base/recipe/explain.h"
#include "plan/builder.h"
#include "plan/verifier.h"
#include "state/retention.h"
#include "train/machine.h"

namespace trireme {
namespace {

int64_t element_bytes(const Task& task) {
  return static_cast<int64_t>(c10::elementSize(task.dtype()));
}

bool is_sharded(const Mesh& mesh) { return mesh.size(Axis::shard) > 1; }

// Samples of each micro-batch of one rank: `micro` is what a rank holds at once, and its lanes
// share it.
std::vector<int64_t> micro_samples(const Job& job) {
  const int64_t share =
      job.recipe.integer("batch.size") / job.mesh.size({Axis::replica, Axis::shard});
  const int64_t each = std::max<int64_t>(1, job.recipe.integer("batch.micro") / job.lanes);
  std::vector<int64_t> samples;
  for (int64_t done = 0; done < share; done += each)
    samples.push_back(std::min(each, share - done));
  return samples;
}

Recompute recompute_of(const Recipe& recipe) {
  const std::string what =
      recipe.has("layout.recompute") ? recipe.text("layout.recompute") : "none";
  return what == "block"       ? Recompute::block
         : what == "selective" ? Recompute::selective
                               : Recompute::none;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::chrono::nanoseconds nanoseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

std::string format_double(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

Graph training_graph(const Job& job) {
  return graph_of(job.task->model(), element_bytes(*job.task), job.mesh.size(Axis::shard));
}

StepProgram training_program(const Job& job, const Graph& graph) {
  constexpr int64_t kMomentsOfAdamW = 2;
  int64_t owned = 0;
  for (const GraphUnit& unit : graph.units) owned += unit.shard_bytes;
  const TrainingPlan plan{
      .micro_samples = micro_samples(job),
      .lanes = job.lanes,
      .sharded = is_sharded(job.mesh),
      .zero = static_cast<int32_t>(job.recipe.integer("layout.zero")),
      .reduce_between_ranks = job.mesh.size({Axis::replica, Axis::shard}) > 1,
      .recompute = recompute_of(job.recipe),
      .resident_bytes = owned * (1 + kMomentsOfAdamW),
  };
  StepProgram program = build_training(graph, plan);
  verify(program, graph);
  return program;
}

Trainer::Trainer(const Job& job, Fabric& fabric, const RunDirectory* directory,
                 fs::path checkpoints)
    : job_(job),
      fabric_(fabric),
      directory_(directory),
      checkpoints_(std::move(checkpoints)),
      mode_(job.recipe.has("kernel.reference") && job.recipe.flag("kernel.reference")
                ? kernel::Mode::reference
                : kernel::Mode::fused),
      data_ranks_(fabric.group(job.mesh, {Axis::replica, Axis::shard})),
      data_rank_(job.mesh.group_rank({Axis::replica, Axis::shard}, fabric.rank())),
      batch_size_(job.recipe.integer("batch.size")),
      steps_(job.recipe.integer("run.steps")),
      memory_scope_(fabric.rank() % kernel::CountingAllocator::kRanks),
      lanes_(
          job.lanes, data_ranks_.size() > 1,
          [rank = fabric.rank()] {
            return std::make_shared<kernel::MemoryScope>(rank % kernel::CountingAllocator::kRanks);
          }),
      parameters_(job.task->model(), job.task->dtype(), job.mesh, fabric.rank(),
                  is_sharded(job.mesh), job.lanes),
      optimizer_(make_optimizer(job.recipe, parameters_, mode_)),
      tables_(job.task->make_tables()),
      graph_(training_graph(job)),
      schedule_(schedule_from(job.recipe)) {
  if (job.mesh.size(Axis::shard) > 1) groups_.shard = &fabric.group(job.mesh, {Axis::shard});
  if (job.mesh.size(Axis::replica) > 1) groups_.replica = &fabric.group(job.mesh, {Axis::replica});
  const ExecutorOptions options{
      .mode = mode_, .rule = optimizer_.get(), .tables = tables_.get(), .groups = groups_};
  ExecutorOptions training = options;
  if (job.trace_steps > 0)
    training.observe = [this](ActionId action, auto turned, auto started, auto ended) {
      if (tracing_) trace_->record(action, turned, started, ended);
    };
  training_ = std::make_unique<Executor>(job.task->model(), parameters_, lanes_,
                                         training_program(job, graph_), std::move(training));
  if (job.trace_steps > 0) trace_ = std::make_unique<Trace>(training_->program(), fabric.rank());
  const int64_t each = micro_samples(job)[0];
  StepProgram forward = build_forward(
      graph_, {.micro_samples = std::vector<int64_t>(static_cast<size_t>(job.lanes), each),
               .lanes = job.lanes,
               .sharded = parameters_.sharded()});
  verify(forward, graph_);
  ExecutorOptions reading = options;
  if (tables_) reading.tables = &tables_->reader();
  evaluation_ = std::make_unique<Executor>(job.task->model(), parameters_, lanes_,
                                           std::move(forward), reading);
}

Trainer::~Trainer() = default;

void Trainer::about_to(const char* what) const {
  if (job_.activity) job_.activity(concat(what, position_.step));
}

void Trainer::prepare(bool resume) {
  std::optional<fs::path> loaded;
  if (resume)
    loaded = load_newest(storage_, checkpoints_, [&](const Checkpoint& checkpoint) {
      position_ = load_checkpoint(checkpoint, job_.task->model(), state());
    });
  if (!loaded) {
    position_ = {};
    if (const Checkpoint* start = job_.task->start())
      load_checkpoint(*start, job_.task->model(), {parameters_});
    else parameters_.initialize(static_cast<uint64_t>(job_.recipe.integer("run.seed")), job_.lanes);
  }
  // Ranks read the same directory; a damaged file seen by one alone must not set them apart.
  double least_and_most[] = {-static_cast<double>(position_.step),
                             static_cast<double>(position_.step)};
  fabric_.world().all_reduce_max(least_and_most);
  if (-least_and_most[0] != least_and_most[1])
    throw RunError(concat("ranks read checkpoints of different steps: ", -least_and_most[0],
                          " and ", least_and_most[1]));
  if (loaded) {
    parent_ = loaded->filename().string();
    saved_step_ = position_.step;
  }
  peak_flops_ = job_.task->words().mfu_convention.empty()
                    ? 0
                    : measured_peak_flops(lanes_, job_.task->dtype());
  double peak[] = {peak_flops_};
  data_ranks_.all_reduce_sum(peak);
  peak_flops_ = peak[0];
  fill_facts();
  if (!directory_) return;

  const int64_t keep_through = loaded ? position_.step : MetricsFile::kNothing;
  ledger_ = std::make_unique<Ledger>(
      directory_->path() / "ledger.json", position_.step,
      Ledger::Options{.before = std::chrono::steady_clock::now() - job_.process_start});
  metrics_ = std::make_unique<MetricsFile>(directory_->path() / "metrics.jsonl",
                                           job_.task->words().unit, keep_through);
  events_ = std::make_unique<TensorBoardWriter>(directory_->path() / "events",
                                                job_.task->words().unit, keep_through);
  if (loaded) {
    evaluated_step_ = metrics_->last_evaluation();
    log_info(concat("resumed from ", loaded->string(), ", after step ", position_.step));
  }
}

std::unique_ptr<Ledger::Scope> Trainer::in(Bucket bucket) {
  return ledger_ ? std::unique_ptr<Ledger::Scope>(new Ledger::Scope(ledger_->in(bucket))) : nullptr;
}

bool Trainer::asked_to_stop() {
  double asked[] = {job_.signal && job_.signal() != 0 ? 1.0 : 0.0};
  fabric_.world().all_reduce_max(asked);
  return asked[0] > 0;
}

Ending Trainer::run() {
  if (directory_) progress_ = std::make_unique<Progress>("step");
  const auto due = [](int64_t every, int64_t step) { return every > 0 && step % every == 0; };
  const int64_t save_every = job_.recipe.integer("checkpoint.every_steps");
  const int64_t evaluate_every = job_.recipe.integer("eval.every_steps");
  bool stop = asked_to_stop();
  if (ledger_) ledger_->started();
  if (position_.step == 0 && job_.recipe.flag("eval.at_start") && !stop) evaluate();
  // The first two steps fill caches and arenas.
  const int64_t trace_from = position_.step + 2, trace_to = trace_from + job_.trace_steps;
  while (position_.step < steps_ && !stop) {
    if (job_.activity) job_.activity(concat("step ", position_.step + 1));
    const auto start = std::chrono::steady_clock::now();
    const bool traced = position_.step >= trace_from && position_.step < trace_to;
    const StepOutcome outcome = traced ? traced_step() : step();
    record(outcome, seconds_since(start));
    if (traced) write_trace();
    if (due(evaluate_every, position_.step)) evaluate();
    stop = asked_to_stop();
    if (due(save_every, position_.step)) save();
  }
  const bool finished = position_.step >= steps_;
  if (finished) evaluate();
  save();
  progress_.reset();
  return finished ? Ending::finished : Ending::stopped;
}

// This rank's samples of the present step, cut into micro-batches.
std::vector<Batch> Trainer::micro_batches() const {
  const int64_t share = batch_size_ / data_ranks_.size();
  auto first = static_cast<uint64_t>(position_.samples + data_rank_ * share);
  std::vector<Batch> batches;
  for (int64_t count : training_->program().micro_samples) {
    batches.push_back(job_.task->train_batch(first, count));
    first += static_cast<uint64_t>(count);
  }
  return batches;
}

Trainer::StepOutcome Trainer::step() {
  StepInput input;
  double weight[] = {0};
  {
    const auto time = in(Bucket::data);
    input.micro_batches = micro_batches();
    for (const Batch& batch : input.micro_batches) weight[0] += job_.task->weight_of(batch);
  }
  const auto time = in(Bucket::compute);
  data_ranks_.all_reduce_sum(weight);
  input.loss_seed = weight[0] > 0 ? 1 / weight[0] : 0;
  optimizer_->begin_step(schedule_.learning_rate(position_.step + 1), position_.updates + 1);
  if (tables_) tables_->begin_step(position_.step + 1);
  const StepResult result = training_->run(input);
  if (ledger_) {
    ledger_->move(Bucket::compute, Bucket::communication, nanoseconds(result.waiting_seconds));
    ledger_->move(Bucket::compute, Bucket::update, nanoseconds(result.update_seconds));
  }
  double loss[] = {result.losses.contains("loss") ? result.losses.at("loss").sum : 0};
  data_ranks_.all_reduce_sum(loss);
  loss[0] *= input.loss_seed;
  if (!std::isfinite(loss[0]) || !result.grad_finite) fail_not_finite(input, result, loss[0]);
  ++position_.step;
  position_.samples += batch_size_;
  position_.updates += result.updated;
  return {loss[0], result.grad_norm, result.time};
}

Trainer::StepOutcome Trainer::traced_step() {
  trace_->begin_step(position_.step + 1);
  tracing_ = true;
  const StepOutcome outcome = step();
  tracing_ = false;
  trace_->end_step();
  return outcome;
}

// After each step, so that a run which is ended early has its trace.
void Trainer::write_trace() const {
  trace_->write(checkpoints_.parent_path() / "trace" / concat("rank-", fabric_.rank(), ".json"));
}

void Trainer::record(const StepOutcome& outcome, double seconds) {
  if (!directory_) return;
  const int64_t units = batch_size_ * job_.task->units_per_sample();
  StepMetrics line{.step = position_.step,
                   .units = position_.samples * job_.task->units_per_sample(),
                   .loss = outcome.loss,
                   .learning_rate = schedule_.learning_rate(position_.step),
                   .grad_norm = outcome.grad_norm,
                   .step_seconds = seconds,
                   .units_per_second = static_cast<double>(units) / seconds};
  if (peak_flops_ > 0)
    line.mfu = job_.task->training_flops_per_sample() * static_cast<double>(batch_size_) / seconds /
               peak_flops_;
  if (job_.allocator) line.peak_memory_bytes = job_.allocator->process().peak_bytes;
  const StepTime& time = outcome.time;
  line.parts = {.gemm_seconds = time.gemm_seconds,
                .attention_seconds = time.attention_seconds,
                .other_compute_seconds = time.other_compute_seconds,
                .update_seconds = time.update_seconds,
                .waiting_seconds = seconds - time.gemm_seconds - time.attention_seconds -
                                   time.other_compute_seconds - time.update_seconds};
  metrics_->add(line);
  events_->add(line);
  ledger_->step_done(position_.step);
  std::string detail = concat("loss ", format_double("%.4f", outcome.loss), " · ",
                              format_count(static_cast<uint64_t>(line.units_per_second)), " ",
                              job_.task->words().unit, "/s");
  if (line.mfu) detail += concat(" · MFU ", format_double("%.0f", 100 * *line.mfu), " %");
  progress_->show(static_cast<uint64_t>(position_.step), static_cast<uint64_t>(steps_), detail);
}

void Trainer::evaluate() {
  if (evaluated_step_ == position_.step) return;
  evaluated_step_ = position_.step;
  about_to("the evaluation after step ");
  const Task& task = *job_.task;
  const std::vector<SampleRange> sets = task.held_out_sets();
  if (!sets.empty()) {
    const auto time = in(Bucket::evaluation);
    const auto start = std::chrono::steady_clock::now();
    const auto evaluation = task.begin_evaluation();
    const auto& micro = evaluation_->program().micro_samples;
    const auto each = static_cast<uint64_t>(micro[0]), lanes = micro.size();
    const uint64_t ranks = static_cast<uint64_t>(data_ranks_.size());
    // Every rank takes the same number of rounds; samples beyond a set's last have no weight.
    for (size_t set = 0; set < sets.size(); ++set)
      for (uint64_t begin = sets[set].begin; begin < sets[set].end; begin += each * lanes * ranks) {
        StepInput input;
        input.want = task.evaluation_wants();
        for (uint64_t lane = 0; lane < lanes; ++lane)
          input.micro_batches.push_back(
              task.held_out_batch(begin + (static_cast<uint64_t>(data_rank_) * lanes + lane) * each,
                                  static_cast<int64_t>(each), sets[set].end));
        evaluation->add(set, input.micro_batches, evaluation_->run(input));
      }
    last_evaluation_ = evaluation->finish(data_ranks_);
    if (directory_) {
      EvalMetrics line{.step = position_.step,
                       .units = position_.samples * task.units_per_sample(),
                       .values = last_evaluation_,
                       .seconds = seconds_since(start)};
      metrics_->add(line);
      events_->add(line);
      std::string text = concat("step ", position_.step, ", held out:");
      for (const auto& [name, value] : last_evaluation_)
        text += concat(" ", name, " ", format_double("%.4f", value));
      log_info(text);
    }
  }
  const auto time = in(Bucket::sampling);
  for (SampleText& sample : job_.task->write_samples(running_model())) {
    sample.step = position_.step;
    if (!directory_) continue;
    metrics_->add(sample);
    events_->add(sample);
  }
  if (directory_) write_report(directory_->path(), facts_);
}

void Trainer::save() {
  if (saved_step_ == position_.step) return;
  about_to("the checkpoint of step ");
  const auto time = in(Bucket::checkpoint);
  CheckpointInfo info{.tokens = position_.samples * job_.task->units_per_sample(),
                      .seed = static_cast<uint64_t>(job_.recipe.integer("run.seed")),
                      .parent = parent_};
  if (fabric_.rank() == 0) {
    info.recipe = frozen_recipe(job_.recipe, {});
    for (const Fact& fact : machine_facts()) info.software[fact.name] = fact.value;
    for (const auto& [name, value] : last_evaluation_)
      if (evaluated_step_ == position_.step && std::isfinite(value)) info.metrics[name] = value;
  }
  if (metrics_) metrics_->sync();
  const fs::path path = save_checkpoint(storage_, checkpoints_, fabric_, job_.mesh, state(),
                                        std::move(info), position_, job_.task->attachments());
  saved_step_ = position_.step;
  if (!directory_) return;
  prune_checkpoints(
      storage_, checkpoints_,
      {.keep = job_.recipe.integer("checkpoint.keep"), .trusted = path.filename().string()});
  log(LogLevel::debug, concat("checkpoint ", path.string()));
}

void Trainer::fill_facts() {
  const Recipe& recipe = job_.recipe;
  const TaskWords& words = job_.task->words();
  facts_.title = recipe.text("run.name");
  facts_.task = recipe.text("task");
  facts_.subtitle = words.subtitle;
  facts_.unit = words.unit;
  facts_.loss_unit = words.loss_unit;
  facts_.held_out = words.held_out;
  facts_.model = words.model;
  if (peak_flops_ > 0)
    facts_.mfu_convention =
        concat(words.mfu_convention, ", of ", format_double("%.0f", peak_flops_ / 1e9),
               " GFLOP/s that matrix products reached here");
  const StepProgram& program = training_->program();
  facts_.layout = {{"ranks", to_string(job_.mesh)},
                   {"lanes a rank", concat(job_.lanes)},
                   {"micro-batches a step", concat(program.micro_samples.size(), " of at most ",
                                                   program.micro_samples[0], " samples")},
                   {"element type", recipe.text("precision.compute")},
                   {"reductions", recipe.text("precision.compute")}};
  const Peak peak = peak_of(program);
  facts_.memory = {
      {"weights that a rank owns", format_bytes(static_cast<uint64_t>(parameters_.owned_bytes()))},
      {"moments", format_bytes(static_cast<uint64_t>(2 * parameters_.owned_bytes()))},
      {"predicted peak a rank", format_bytes(static_cast<uint64_t>(peak.bytes))}};
  if (tables_)
    for (const Fact& fact : tables_->facts()) facts_.memory.push_back(fact);
  facts_.machine = machine_facts();
}

// --- When numbers stop being finite

// Weights first, then values in the order in which blocks make them, then gradients: the first is
// the cause.
std::string Trainer::first_not_finite(const StepInput& input) {
  std::string found;
  const auto bad = [](const at::Tensor& x) { return !x.isfinite().all().item<bool>(); };
  for (const Unit& unit : parameters_.units())
    for (const Piece& piece : unit.pieces)
      if (found.empty() && bad(unit.shard.narrow(0, piece.shard_offset, piece.shard_numel)))
        found = concat("the weight ", piece.spec.name);
  if (!found.empty()) return found;
  std::mutex mutex;
  ExecutorOptions options{
      .mode = mode_, .tables = tables_ ? &tables_->reader() : nullptr, .groups = groups_};
  options.inspect = [&](const std::string& block, const std::string& value, const at::Tensor& x) {
    const std::lock_guard lock(mutex);
    if (found.empty() && bad(x))
      found = concat("the output ", value, " of the block '", block, "'");
  };
  StepProgram program = build_forward(graph_, {.micro_samples = training_->program().micro_samples,
                                               .lanes = job_.lanes,
                                               .sharded = parameters_.sharded()});
  Executor(job_.task->model(), parameters_, lanes_, std::move(program), options).run(input);
  if (!found.empty()) return found;
  for (size_t u = 0; u < parameters_.units().size(); ++u)
    for (const Piece& piece : parameters_.units()[u].pieces)
      if (found.empty() &&
          bad(training_->gradient(u).narrow(0, piece.shard_offset, piece.shard_numel)))
        found = concat("the gradient of ", piece.spec.name);
  return found;
}

void Trainer::fail_not_finite(const StepInput& input, const StepResult& result, double loss) {
  const std::string found = first_not_finite(input);
  // The rank with the finding speaks first; the others leave after it.
  double least[] = {found.empty() ? -1e9 : -static_cast<double>(fabric_.rank())};
  fabric_.world().all_reduce_max(least);
  const auto speaker = static_cast<int>(-least[0]);
  if (speaker != fabric_.rank() && least[0] > -1e9) {
    fabric_.world().barrier();
    throw RunError("the step failed on another rank");
  }
  std::string kept = saved_step_ < 0
                         ? "no checkpoint was written before it"
                         : concat("the checkpoint of step ", saved_step_, " is the last good one");
  throw RunError(concat(
      "step ", position_.step + 1, ": ",
      std::isfinite(loss) ? concat("the gradient (norm ", result.grad_norm, ")")
                          : concat("the loss (", loss, ")"),
      " is not finite; first bad tensor: ", found.empty() ? "not found again" : found, "; ", kept,
      "\nnext: a lower optimizer.lr, optimizer.clip or a longer schedule.warmup_steps often "
      "helps"));
}

}  // namespace trireme
