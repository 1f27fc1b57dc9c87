#include "train/train.h"

#include <ATen/Parallel.h>

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "fabric/process_fabric.h"
#include "fabric/thread_fabric.h"
#include "state/retention.h"
#include "train/load_model.h"
#include "train/trainer.h"

namespace trireme {
namespace {

Mesh mesh_from(const Recipe& recipe) {
  return Mesh(AxisSizes{.replica = static_cast<int>(recipe.integer("layout.replica")),
                        .shard = static_cast<int>(recipe.integer("layout.shard"))});
}

// Epochs become steps once the data says how long an epoch is; a part of a step counts as one.
void derive_steps(Recipe& recipe, const Task& task) {
  if (!recipe.has("run.epochs")) return;
  const double samples =
      recipe.number("run.epochs") * static_cast<double>(task.samples_per_epoch());
  const double steps = std::ceil(samples / static_cast<double>(recipe.integer("batch.size")));
  recipe.set_derived("run.steps", std::max<int64_t>(1, static_cast<int64_t>(steps)));
}

void print_program(const Job& job) {
  const StepProgram program = training_program(job, training_graph(job));
  const Peak peak = peak_of(program);
  std::printf("%s\n", to_text(program).c_str());
  std::printf("layout          %s, %d lanes a rank\n", to_string(job.mesh).c_str(), job.lanes);
  std::printf("parameters      %s\n",
              format_count(static_cast<uint64_t>(job.task->model().parameter_count())).c_str());
  std::printf("actions         %zu a rank and step\n", program.actions.size());
  std::printf("FLOPs           %.4g a rank and step, recomputation included\n", flops_of(program));
  std::printf("resident        %s a rank: weights and moments\n",
              format_bytes(static_cast<uint64_t>(program.resident_bytes)).c_str());
  std::printf("predicted peak  %s a rank%s%s\n",
              format_bytes(static_cast<uint64_t>(peak.bytes)).c_str(),
              peak.action < 0 ? "" : ", at ",
              peak.action < 0 ? "" : describe(program, peak.action).c_str());
}

// Rank 0's text, on all ranks. It may take long to know it: a corpus is built before, say. A rank 0
// that dies ends the wait at once, and one that hangs is its supervisor's to end.
std::string share_text(Communicator& world, std::string text) {
  constexpr auto kLong = std::chrono::hours(24 * 7);
  at::Tensor length = at::empty({1}, at::kLong);
  length.mutable_data_ptr<int64_t>()[0] = static_cast<int64_t>(text.size());
  Operation first = op::broadcast(length, 0);
  if (world.rank() != 0) first.timeout = kLong;
  world.run(std::move(first));
  at::Tensor bytes = at::empty({length.item<int64_t>()}, at::kByte);
  if (world.rank() == 0) std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  world.broadcast(bytes, 0);
  const auto* data = static_cast<const char*>(bytes.const_data_ptr());
  return {data, static_cast<size_t>(bytes.numel())};
}

// The ranks of this process: all of them as threads, or the one that `region` says.
void run_local_ranks(const TrainOptions& options, int ranks, std::optional<ProcessFabric>& own,
                     const std::function<void(Fabric&)>& rank_main) {
  if (!own) return run_ranks(ranks, rank_main, {.timeout = options.timeout});
  rank_main(*own);
  own->drop_groups();
}

}  // namespace

bool train(Recipe recipe, const TrainOptions& options) {
  at::set_num_threads(1);
  const Mesh mesh = mesh_from(recipe);
  if (recipe.has("data.sequence")) derive_boundaries(recipe);
  std::optional<ProcessFabric> own;
  if (options.region) own.emplace(*options.region, FabricOptions{.timeout = options.timeout});
  const bool leads = !own || own->rank() == 0;
  std::optional<RunDirectory> directory;
  if (!options.dry_run && leads) {
    directory.emplace(RunDirectory::open(recipe, options.resume));
    log_info(concat("run directory ", directory->path().string()));
    if (options.resume) directory->check_against_frozen(recipe);
    make_directories(directory->path() / "log");
    if (options.trace_steps > 0) make_directories(directory->path() / "trace");
    log_to_file(directory->path() / "log" / "rank-0.txt");
  }

  // A corpus is built once, by rank 0; the others find it.
  std::string lead_path;
  if (own && !leads && !options.dry_run) lead_path = share_text(own->world(), "");
  Job job{.recipe = std::move(recipe), .mesh = mesh};
  job.task = make_task(job.recipe);
  derive_steps(job.recipe, *job.task);
  job.lanes = std::max(1, static_cast<int>(job.recipe.integer("run.threads")) / mesh.ranks());
  job.allocator = options.allocator;
  job.signal = options.signal;
  job.trace_steps = options.trace_steps;
  job.process_start = options.process_start;
  if (own) job.activity = [&](const std::string& text) { options.region->set_activity(text); };
  if (options.dry_run) {
    print_program(job);
    return false;
  }

  PosixStorage storage;
  if (leads) {
    remove_leftovers(storage, directory->checkpoints());
    directory->freeze(job.recipe);
  }
  const fs::path path = leads ? directory->path() : fs::path(lead_path);
  if (own && leads) share_text(own->world(), path.string());
  if (!leads) log_to_file(path / "log" / concat("rank-", own->rank(), ".txt"));
  Ending ending = Ending::finished;
  ReportFacts facts;
  run_local_ranks(options, mesh.ranks(), own, [&](Fabric& fabric) {
    const bool first = fabric.rank() == 0;
    Trainer trainer(job, fabric, first ? &*directory : nullptr, path / "checkpoints");
    trainer.prepare(options.resume);
    try {
      const Ending mine = trainer.run();
      if (first || own) ending = mine;
      if (!first) return;
      facts = trainer.facts();
      trainer.ledger()->finish(mine == Ending::finished ? Outcome::finished : Outcome::stopped,
                               mine == Ending::finished ? "" : "a signal asked for it");
    } catch (const Error& error) {
      if (first) {
        trainer.ledger()->finish(Outcome::failed, error.what());
        write_report(directory->path(), trainer.facts());
      }
      throw;
    }
  });
  if (!leads) return ending == Ending::stopped;
  write_report(directory->path(), facts);
  std::fputs(summary_text(directory->path(), facts).c_str(), stdout);
  return ending == Ending::stopped;
}

}  // namespace trireme
