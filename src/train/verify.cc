#include "train/verify.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>

#include "base/error.h"
#include "base/log.h"
#include "fabric/process_fabric.h"
#include "fabric/thread_fabric.h"
#include "train/trainer.h"

namespace trireme {
namespace {

using GlobalTensors = std::map<std::string, at::Tensor>;

struct Layout {
  int64_t replica = 1, shard = 1;
  std::string recompute;  // empty: the recipe's
  int64_t zero = 0;       // 0: the recipe's

  int64_t ranks() const { return replica * shard; }
  std::string text() const {
    std::string out = concat("replica=", replica, ",shard=", shard);
    if (zero > 0) out += concat(",zero=", zero);
    return recompute.empty() ? out : out + ",recompute=" + recompute;
  }
};

struct Numbers {
  std::vector<double> losses, norms;
  GlobalTensors gradients;  // after the first step
  GlobalTensors weights;    // after the last
  std::string unequal_replica;
  double learning_rate = 0, seconds = 0;
};

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, by);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

Layout parse_layout(const std::string& text) {
  Layout layout;
  for (const std::string& item : split(text, ',')) {
    const size_t at = item.find('=');
    const std::string key = item.substr(0, at),
                      value = at == std::string::npos ? "" : item.substr(at + 1);
    if (key == "recompute") {
      TRIREME_CHECK(value == "none" || value == "selective" || value == "block",
                    "--layouts: recompute must be none, selective or block, got '", value, "'");
      layout.recompute = value;
      continue;
    }
    if (key == "zero") {
      TRIREME_CHECK(value == "1" || value == "2" || value == "3",
                    "--layouts: zero must be 1, 2 or 3, got '", value, "'");
      layout.zero = std::stoi(value);
      continue;
    }
    TRIREME_CHECK(key == "replica" || key == "shard",
                  "--layouts: expected replica=N, shard=N, zero=1|2|3 or "
                  "recompute=none|selective|block, got '",
                  item, "'");
    TRIREME_CHECK(!value.empty() && value.size() < 5 && std::ranges::all_of(value, ::isdigit) &&
                      std::stoi(value) > 0,
                  "--layouts: ", key, " must be a number of ranks, got '", value, "'");
    (key == "replica" ? layout.replica : layout.shard) = std::stoi(value);
  }
  return layout;
}

std::vector<Layout> wanted_layouts(const VerifyOptions& options, bool recomputes) {
  std::vector<Layout> layouts;
  if (options.layouts != "all") {
    for (const std::string& text : split(options.layouts, ';'))
      layouts.push_back(parse_layout(text));
    return layouts;
  }
  for (int64_t replica = 1; replica <= options.ranks; ++replica) {
    if (options.ranks % replica != 0) continue;
    const int64_t shard = options.ranks / replica;
    const std::vector<int64_t> stages =
        shard > 1 ? std::vector<int64_t>{1, 2, 3} : std::vector<int64_t>{0};
    const std::vector<std::string> kinds =
        recomputes ? std::vector<std::string>{"none", "selective", "block"}
                   : std::vector<std::string>{""};
    for (const int64_t zero : stages)
      for (const std::string& recompute : kinds)
        layouts.push_back({replica, shard, recompute, zero});
  }
  return layouts;
}

Recipe recipe_for(const VerifyOptions& options, const Layout& layout) {
  const Recipe plain = load_recipe(options.recipe, options.overrides);
  std::vector<std::string> overrides = options.overrides;
  overrides.push_back(concat("layout.replica=", layout.replica));
  overrides.push_back(concat("layout.shard=", layout.shard));
  overrides.push_back(concat("precision.compute=", options.fp64 ? "fp64" : "fp32"));
  overrides.push_back(concat("run.threads=", layout.ranks()));
  if (layout.zero > 0) overrides.push_back(concat("layout.zero=", layout.zero));
  if (!layout.recompute.empty()) overrides.push_back("layout.recompute=" + layout.recompute);
  // The recipe's micro-batch, or what of it divides a rank's share here.
  const int64_t size = plain.integer("batch.size");
  if (size % layout.ranks() == 0)
    overrides.push_back(
        concat("batch.micro=", std::gcd(size / layout.ranks(), plain.integer("batch.micro"))));
  return load_recipe(options.recipe, overrides);
}

// Copies this rank's piece to its place in the global tensor, and reports a replica that holds
// other bits.
void collect(const Unit& unit, const at::Tensor& flat, GlobalTensors& into, std::string& unequal) {
  for (const Piece& piece : unit.pieces) {
    at::Tensor& whole = into[piece.spec.name];
    if (!whole.defined())
      whole = at::zeros(piece.spec.shape, flat.options().requires_grad(false)).fill_(NAN);
    const Range rows = piece.slice.dims[0][0];
    at::Tensor place = whole.narrow(0, rows.begin, rows.size()).view({-1});
    const at::Tensor mine = flat.narrow(0, piece.shard_offset, piece.shard_numel);
    if (mine.numel() == 0) continue;
    if (place.isnan().all().item<bool>()) place.copy_(mine);
    else if (!place.equal(mine) && unequal.empty()) unequal = piece.spec.name;
  }
}

// What another process collected, into what this one has.
void merge(const at::Tensor& theirs, at::Tensor& ours, const std::string& name,
           std::string& unequal) {
  const at::Tensor missing = ours.isnan(), known = theirs.isnan().logical_not();
  const at::Tensor differs = known.logical_and(missing.logical_not()).logical_and(theirs.ne(ours));
  if (unequal.empty() && differs.any().item<bool>()) unequal = name;
  ours = at::where(missing, theirs, ours);
}

// Ranks that are processes: rank 0 gets what all have collected. The tensors' names and shapes are
// the same everywhere.
void bring_together(Fabric& fabric, GlobalTensors& tensors, std::string& unequal) {
  Communicator& world = fabric.world();
  for (auto& [name, whole] : tensors) {
    if (fabric.rank() > 0) world.send(whole, 0);
    at::Tensor theirs = at::empty_like(whole);
    for (int rank = 1; fabric.rank() == 0 && rank < fabric.ranks(); ++rank) {
      world.recv(theirs, rank);
      merge(theirs, whole, name, unequal);
    }
  }
}

Numbers run_layout(const VerifyOptions& options, const Layout& layout,
                   std::shared_ptr<const Task> task, Fabric* processes) {
  Job job{.recipe = recipe_for(options, layout),
          .task = std::move(task),
          .mesh = Mesh({.replica = static_cast<int>(layout.replica),
                        .shard = static_cast<int>(layout.shard)})};
  if (!job.recipe.has("run.steps")) job.recipe.set_derived("run.steps", options.steps);
  Numbers numbers;
  std::mutex mutex;
  const auto start = std::chrono::steady_clock::now();
  const auto rank_main = [&](Fabric& fabric) {
    Trainer trainer(job, fabric, nullptr, {});
    trainer.prepare(false);
    const auto& units = trainer.parameters().units();
    for (int64_t step = 0; step < options.steps; ++step) {
      const Trainer::StepOutcome outcome = trainer.step();
      const std::lock_guard lock(mutex);
      if (fabric.rank() == 0) {
        numbers.losses.push_back(outcome.loss);
        numbers.norms.push_back(outcome.grad_norm);
      }
      for (size_t u = 0; step == 0 && u < units.size(); ++u)
        collect(units[u], trainer.gradient(u), numbers.gradients, numbers.unequal_replica);
    }
    const std::lock_guard lock(mutex);
    for (const Unit& unit : units)
      collect(unit, unit.shard, numbers.weights, numbers.unequal_replica);
  };
  if (processes) {
    rank_main(*processes);
    bring_together(*processes, numbers.gradients, numbers.unequal_replica);
    bring_together(*processes, numbers.weights, numbers.unequal_replica);
  } else {
    run_ranks(job.mesh.ranks(), rank_main, {.timeout = options.timeout});
  }
  numbers.learning_rate = job.recipe.number("optimizer.lr");
  numbers.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return numbers;
}

double norm_of(const at::Tensor& x) { return x.to(at::kDouble).norm().item<double>(); }
double distance(const at::Tensor& a, const at::Tensor& b) {
  return norm_of(a.to(at::kDouble) - b.to(at::kDouble));
}

// Keeps the worst error, and the first beyond its bound. NaN is beyond every bound.
class Comparison {
 public:
  Comparison(LayoutComparison& row, std::optional<Difference>& first) : row_(row), first_(first) {}

  void add(double& worst, double error, double bound, const char* what, const std::string& tensor) {
    if (!(error <= worst)) worst = error;
    if (!(error <= bound) && !first_) first_ = Difference{row_.layout, tensor, what, error, bound};
  }

 private:
  LayoutComparison& row_;
  std::optional<Difference>& first_;
};

LayoutComparison compare(const VerifyOptions& options, const Layout& layout, const Numbers& a,
                         const Numbers& b, std::optional<Difference>& first) {
  LayoutComparison row{.layout = layout.text(), .loss = a.losses.back(), .seconds = a.seconds};
  Comparison comparison(row, first);
  const double scalar_bound = options.fp64 ? 1e-11 : 1e-6,
               gradient_bound = options.fp64 ? 1e-11 : 1e-5;
  const size_t steps = options.fp64 ? a.losses.size() : 1;
  for (size_t step = 0; step < steps; ++step) {
    const std::string name = concat("step ", step + 1);
    comparison.add(row.loss_error,
                   std::abs(a.losses[step] - b.losses[step]) / std::abs(b.losses[step]),
                   scalar_bound, "loss", name);
    comparison.add(row.norm_error, std::abs(a.norms[step] - b.norms[step]) / b.norms[step],
                   scalar_bound, "gradient norm", name);
  }
  for (const auto& [name, reference] : b.gradients)
    comparison.add(
        row.worst_gradient,
        distance(a.gradients.at(name), reference) / std::max(norm_of(reference), 1e-4 * b.norms[0]),
        gradient_bound, "gradient", name);
  if (options.fp64)
    for (const auto& [name, reference] : b.weights) {
      const double scale =
          norm_of(reference) + b.learning_rate * static_cast<double>(options.steps) *
                                   std::sqrt(static_cast<double>(reference.numel()));
      comparison.add(row.worst_weight, distance(a.weights.at(name), reference) / scale, 1e-11,
                     "weight", name);
    }
  if (!a.unequal_replica.empty() && !first)
    first = Difference{row.layout, a.unequal_replica, "replicas", 1, 0};
  return row;
}

}  // namespace

Verification verify_layouts(const VerifyOptions& options) {
  Recipe plain = recipe_for(options, Layout{});
  const std::shared_ptr<const Task> task = make_task(plain);
  Verification verification;
  std::optional<ProcessFabric> processes;
  if (options.region) processes.emplace(*options.region, FabricOptions{.timeout = options.timeout});
  const bool compares = !processes || processes->rank() == 0;
  Numbers reference;
  if (compares) {
    reference = run_layout(options, Layout{}, task, nullptr);
    verification.reference_loss = reference.losses.back();
  }
  if (processes) processes->world().barrier();
  const int64_t batch = plain.integer("batch.size");
  for (const Layout& layout : wanted_layouts(options, plain.has("layout.recompute"))) {
    if (options.layouts == "all" && batch % layout.ranks() != 0) continue;
    TRIREME_CHECK(!processes || layout.ranks() == options.ranks, "--layouts: ", layout.text(),
                  " has ", layout.ranks(), " ranks, and --ranks starts ", options.ranks,
                  " processes");
    const Numbers numbers = run_layout(options, layout, task, processes ? &*processes : nullptr);
    if (compares)
      verification.layouts.push_back(
          compare(options, layout, numbers, reference, verification.first_difference));
  }
  TRIREME_CHECK(!compares || !verification.layouts.empty(), plain.where("batch.size"),
                ": batch.size = ", batch, " fits no layout of ", options.ranks, " ranks");
  return verification;
}

}  // namespace trireme
