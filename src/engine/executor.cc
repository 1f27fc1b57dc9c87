#include "engine/executor.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.h"
#include "fabric/communicator.h"
#include "kernel/adamw.h"

namespace trireme {

// What a forward keeps for its backward.
struct Executor::Tape {
  std::vector<at::Tensor> inputs;  // leaves
  BlockOutput output;
};

struct Executor::Part {
  struct Stretch {
    int64_t begin, end;  // of the unit's shard
  };
  std::vector<Stretch> stretches;  // by unit
  kernel::SquareSum squares;
};

namespace {

using Clock = std::chrono::steady_clock;

double in_seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

double seconds_since(Clock::time_point start) { return in_seconds(Clock::now() - start); }

// Of lanes that ran side by side for so long; what a lane did not work, it waited.
StepTime mean_of(const std::vector<StepTime>& lanes, double seconds) {
  const auto count = static_cast<double>(lanes.size());
  StepTime mean;
  for (const StepTime& lane : lanes) {
    mean.gemm_seconds += lane.gemm_seconds / count;
    mean.attention_seconds += lane.attention_seconds / count;
    mean.other_compute_seconds += lane.other_compute_seconds / count;
    mean.update_seconds += lane.update_seconds / count;
  }
  mean.waiting_seconds = seconds - mean.gemm_seconds - mean.attention_seconds -
                         mean.other_compute_seconds - mean.update_seconds;
  return mean;
}

}  // namespace

Executor::Executor(const Model& model, Parameters& parameters, Lanes& lanes, StepProgram program,
                   ExecutorOptions options)
    : model_(model),
      parameters_(parameters),
      lanes_(lanes),
      program_(std::move(program)),
      options_(std::move(options)),
      lane_actions_(static_cast<size_t>(program_.lanes) + 1),
      readers_(program_.slots.size()),
      last_reduce_(parameters.units().size(), -1),
      parts_(static_cast<size_t>(program_.lanes)),
      done_(program_.actions.size()),
      readers_left_(program_.slots.size()),
      slots_(program_.slots.size()),
      tapes_(program_.slots.size()),
      reduced_(parameters.units().size()),
      losses_(program_.micro_samples.size()),
      times_(static_cast<size_t>(program_.lanes)) {
  TRIREME_ASSERT(program_.lanes == lanes.count() && program_.lanes == parameters.lanes());
  for (ActionId id = 0; id < static_cast<ActionId>(program_.actions.size()); ++id) {
    const Action& action = program_.actions[static_cast<size_t>(id)];
    const bool communicates = action.lane == kCommunicationLane;
    TRIREME_ASSERT(!communicates || lanes.communicates(), "the program needs a communication lane");
    lane_actions_[static_cast<size_t>(communicates ? program_.lanes : action.lane)].push_back(id);
    for (SlotId slot : action.reads) ++readers_[static_cast<size_t>(slot)];
    if (action.kind == ActionKind::reduce && communicates)
      last_reduce_[static_cast<size_t>(action.block)] = id;
    if (action.kind == ActionKind::update)
      TRIREME_ASSERT(action.table < 0 ? options_.rule != nullptr : options_.tables != nullptr);
  }
  for (size_t block = 0; block < model.nodes.size(); ++block) {
    auto& units = block_units_.emplace_back();
    for (const auto& [unit, weight] : parameters.weights_of_block(block))
      if (std::ranges::find(units, unit) == units.end()) units.push_back(unit);
  }
  // Equal parts of every unit's shard, cut at multiples of a cache line.
  for (const Unit& unit : parameters_.units()) {
    const int64_t numel = unit.shard_numel;
    const int64_t each = ((numel + program_.lanes - 1) / program_.lanes + 63) / 64 * 64;
    for (int64_t lane = 0; lane < program_.lanes; ++lane)
      parts_[static_cast<size_t>(lane)].stretches.push_back(
          {std::min(numel, lane * each), std::min(numel, (lane + 1) * each)});
  }
}

Executor::~Executor() = default;

StepResult Executor::run(const StepInput& input) {
  TRIREME_ASSERT(!failed_.load(), "a step of this executor failed before");
  TRIREME_ASSERT(input.micro_batches.size() == program_.micro_samples.size(),
                 input.micro_batches.size(), " micro-batches for a program of ",
                 program_.micro_samples.size());
  input_ = &input;
  result_ = {};
  result_.results.resize(input.micro_batches.size());
  for (auto& losses : losses_) losses.clear();
  for (auto& time : times_) time = {};
  for (auto& gradient : reduced_) gradient.reset();
  for (Part& part : parts_) part.squares = {};
  for (size_t slot = 0; slot < readers_.size(); ++slot)
    readers_left_[slot].store(readers_[slot], std::memory_order_relaxed);
  scale_.reset();
  ++step_;
  const auto start = Clock::now();
  lanes_.run([this](int lane) { run_lane(lane); });
  result_.time = mean_of(times_, seconds_since(start));
  for (const LossSums& losses : losses_)
    for (const auto& [name, part] : losses) {
      result_.losses[name].sum += part.sum;
      result_.losses[name].weight += part.weight;
    }
  input_ = nullptr;
  return std::move(result_);
}

void Executor::run_lane(int lane) {
  try {
    for (ActionId id :
         lane_actions_[static_cast<size_t>(lane == kCommunicationLane ? program_.lanes : lane)]) {
      const auto start = Clock::now();
      for (ActionId other : program_.actions[static_cast<size_t>(id)].after) wait_for(other);
      if (failed_.load(std::memory_order_acquire)) return;
      const auto ready = Clock::now();
      const kernel::WorkTime before = kernel::work_time();
      run_action(id);
      const auto ended = Clock::now();
      if (lane != kCommunicationLane) account(lane, id, in_seconds(ended - ready), before);
      done_[static_cast<size_t>(id)].store(step_, std::memory_order_release);
      done_[static_cast<size_t>(id)].notify_all();
      if (options_.observe) options_.observe(id, start, ready, ended);
      if (lane != 0) continue;
      result_.waiting_seconds += in_seconds(ready - start);
      const ActionKind kind = program_.actions[static_cast<size_t>(id)].kind;
      const bool computes = kind == ActionKind::forward || kind == ActionKind::backward;
      (computes ? result_.compute_seconds : result_.update_seconds) += in_seconds(ended - ready);
    }
  } catch (...) {
    give_up();
    throw;
  }
}

void Executor::account(int lane, ActionId id, double seconds, const kernel::WorkTime& before) {
  StepTime& time = times_[static_cast<size_t>(lane)];
  const ActionKind kind = program_.actions[static_cast<size_t>(id)].kind;
  if (kind == ActionKind::reduce || kind == ActionKind::norm || kind == ActionKind::update) {
    time.update_seconds += seconds;
    return;
  }
  const kernel::WorkTime& after = kernel::work_time();
  const double gemm = in_seconds(after.gemm - before.gemm);
  const double attention = in_seconds(after.attention - before.attention);
  time.gemm_seconds += gemm;
  time.attention_seconds += attention;
  time.other_compute_seconds += seconds - gemm - attention;
}

void Executor::wait_for(ActionId id) {
  auto& done = done_[static_cast<size_t>(id)];
  for (int spin = 0; spin < 1000; ++spin)
    if (done.load(std::memory_order_acquire) == step_) return;
  for (;;) {
    const uint32_t seen = done.load(std::memory_order_acquire);
    if (seen == step_) return;
    done.wait(seen, std::memory_order_acquire);
  }
}

// Lets every waiting lane go on; each sees `failed_` before it runs another action. A communication
// lane that waits for other ranks is met by them, since theirs wait for no more than we did; the
// fabric ends the rest when this rank throws.
void Executor::give_up() {
  failed_.store(true, std::memory_order_release);
  for (auto& done : done_) {
    done.store(step_, std::memory_order_release);
    done.notify_all();
  }
}

void Executor::run_action(ActionId id) {
  const Action& action = program_.actions[static_cast<size_t>(id)];
  switch (action.kind) {
    case ActionKind::gather:
      gather(action);
      break;
    case ActionKind::release:
      release(action);
      break;
    case ActionKind::forward:
      forward(action);
      break;
    case ActionKind::backward:
      backward(action);
      break;
    case ActionKind::pull_rows:
      pull(action);
      break;
    case ActionKind::push_rows:
      push(action);
      break;
    case ActionKind::reduce:
      action.lane == kCommunicationLane ? reduce_unit(id, action) : reduce_part(action);
      break;
    case ActionKind::norm:
      norm();
      break;
    case ActionKind::update:
      update(action);
      break;
  }
  free_slots_read_by(action);
}

void Executor::free_slots_read_by(const Action& action) {
  for (SlotId id : action.reads)
    if (readers_left_[static_cast<size_t>(id)].fetch_sub(1, std::memory_order_acq_rel) == 1) {
      slot(id).reset();
      tapes_[static_cast<size_t>(id)].reset();
    }
}

void Executor::gather(const Action& action) {
  Unit& unit = parameters_.units()[static_cast<size_t>(action.block)];
  parameters_.materialize(unit);
  options_.groups.shard->all_gather_segments(unit.shard, unit.whole, unit.segments);
}

void Executor::release(const Action& action) {
  parameters_.release(parameters_.units()[static_cast<size_t>(action.block)]);
}

// The block's weights as this lane's leaves. With gradients, each leaf's grad() becomes a view of
// the unit's gradient slot, which the first to add makes and clears.
std::vector<at::Tensor> Executor::weights_for(const Action& action, bool with_gradients) {
  const auto block = static_cast<size_t>(action.block);
  std::vector<at::Tensor> buffers(parameters_.units().size());
  if (with_gradients) {
    size_t next = 0;
    for (SlotId id : action.adds) {
      if (kind_of(id) != SlotKind::gradient) continue;
      const auto unit = static_cast<size_t>(block_units_[block].at(next++));
      if (!slot(id).defined())
        slot(id) = at::zeros({parameters_.units()[unit].whole_numel},
                             at::TensorOptions(parameters_.dtype()));
      buffers[unit] = slot(id);
    }
  }
  std::vector<at::Tensor> weights;
  for (const auto& ref : parameters_.weights_of_block(block)) {
    const Unit& unit = parameters_.units()[static_cast<size_t>(ref.unit)];
    at::Tensor& leaf = parameters_.leaf(action.lane, ref);
    const at::Tensor& buffer = buffers[static_cast<size_t>(ref.unit)];
    if (buffer.defined()) {
      const Segment& where = unit.weights[static_cast<size_t>(ref.weight)];
      leaf.mutable_grad() = buffer.narrow(0, where.offset, where.numel).view(leaf.sizes());
    }
    weights.push_back(leaf);
  }
  return weights;
}

// The leaves are views of gradient slots no longer; else they would keep them alive.
void Executor::let_go_of_gradients(const Action& action) {
  for (const auto& ref : parameters_.weights_of_block(static_cast<size_t>(action.block)))
    parameters_.leaf(action.lane, ref).mutable_grad().reset();
}

void Executor::forward(const Action& action) {
  const ModelNode& node = model_.nodes[static_cast<size_t>(action.block)];
  const size_t inputs = node.inputs.size() + node.tables.size();
  auto tape = std::make_unique<Tape>();
  for (size_t i = 0; i < inputs; ++i)
    tape->inputs.push_back(slot(action.reads[i]).detach().set_requires_grad(action.keeps_tape));
  const Context context{.batch = input_->micro_batches[static_cast<size_t>(action.micro)],
                        .mode = options_.mode,
                        .remake = program_.remakes && action.keeps_tape,
                        .want = input_->want,
                        .loss_seed = input_->loss_seed,
                        .cache = input_->cache};
  const std::vector<at::Tensor> weights = weights_for(action, action.keeps_tape);
  {
    const at::AutoGradMode recording(action.keeps_tape);
    tape->output = node.block->forward(tape->inputs, weights, context);
  }
  if (action.keeps_tape) let_go_of_gradients(action);
  TRIREME_ASSERT(tape->output.values.size() == node.outputs.size(), node.block->name());

  const bool runs_again = action.keeps_tape && !node.outputs.empty() && action.writes.size() == 1;
  if (!runs_again) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      slot(action.writes[i]) = tape->output.values[i].detach();
      if (options_.inspect)
        options_.inspect(node.block->name(), node.outputs[i], slot(action.writes[i]));
    }
    for (const Loss& loss : tape->output.losses) {
      WeightedSum& sum = losses_[static_cast<size_t>(action.micro)][loss.name];
      sum.sum += loss.sum.item<double>();  // on a CPU nothing waits for this
      sum.weight += loss.weight;
    }
    if (!tape->output.results.empty())
      result_.results[static_cast<size_t>(action.micro)] = std::move(tape->output.results);
  }
  if (action.keeps_tape) tapes_[static_cast<size_t>(action.writes.back())] = std::move(tape);
}

void Executor::backward(const Action& action) {
  const ModelNode& node = model_.nodes[static_cast<size_t>(action.block)];
  const size_t inputs = node.inputs.size() + node.tables.size();
  Tape& tape = *tapes_[static_cast<size_t>(action.reads[inputs])];
  std::vector<at::Tensor> roots, gradients;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (!tape.output.values[i].requires_grad()) continue;
    roots.push_back(tape.output.values[i]);
    gradients.push_back(slot(action.reads[inputs + 1 + i]));
  }
  for (const Loss& loss : tape.output.losses) {
    if (!loss.sum.requires_grad()) continue;
    roots.push_back(loss.sum);
    gradients.push_back(at::full({}, loss.coefficient * input_->loss_seed, loss.sum.options()));
  }
  weights_for(action, true);
  if (!roots.empty()) torch::autograd::backward(roots, gradients);
  let_go_of_gradients(action);

  size_t next_write = 0, next_add = 0;
  for (size_t i = 0; i < inputs; ++i) {
    at::Tensor gradient = tape.inputs[i].grad();
    if (!gradient.defined()) gradient = at::zeros_like(tape.inputs[i]);
    // A value with several readers has a gradient that they add to; those slots stand before the
    // units' in `adds`.
    const bool adds = next_add < action.adds.size() &&
                      kind_of(action.adds[next_add]) == SlotKind::value &&
                      program_.slots[static_cast<size_t>(action.adds[next_add])].name ==
                          "d " + program_.slots[static_cast<size_t>(action.reads[i])].name;
    give(adds ? action.adds[next_add++] : action.writes[next_write++], std::move(gradient), adds);
  }
}

void Executor::give(SlotId id, at::Tensor value, bool add) {
  at::Tensor& target = slot(id);
  target = add && target.defined() ? target.add(value) : std::move(value);
}

void Executor::pull(const Action& action) {
  slot(action.writes[0]) = options_.tables->pull(
      action.table, action.micro, input_->micro_batches[static_cast<size_t>(action.micro)]);
}

void Executor::push(const Action& action) {
  options_.tables->push(action.table, action.micro,
                        input_->micro_batches[static_cast<size_t>(action.micro)],
                        slot(action.reads[0]));
}

// Alone: this lane's part of a unit, summed over lanes into the first lane's buffer.
void Executor::reduce_part(const Action& action) {
  const auto u = static_cast<size_t>(action.block);
  Part& part = parts_[static_cast<size_t>(action.lane)];
  const auto [begin, end] = part.stretches[u];
  if (action.lane == 0) reduced_[u] = slot(action.reads[0]);
  if (begin == end) return;
  at::Tensor into = slot(action.reads[0]).narrow(0, begin, end - begin);
  std::vector<at::Tensor> others;
  for (size_t lane = 1; lane < action.reads.size(); ++lane)
    others.push_back(slot(action.reads[lane]).narrow(0, begin, end - begin));
  const kernel::SquareSum squares = kernel::add_up_(into, others, options_.mode);
  part.squares.value += squares.value;
  part.squares.finite &= squares.finite;
}

// Between ranks: a whole unit, over lanes, then over the shard group, at the end over replicas.
void Executor::reduce_unit(ActionId id, const Action& action) {
  const auto u = static_cast<size_t>(action.block);
  Unit& unit = parameters_.units()[u];
  at::Tensor whole = slot(action.reads[0]);
  std::vector<at::Tensor> others;
  for (size_t lane = 1; lane < action.reads.size(); ++lane)
    others.push_back(slot(action.reads[lane]));
  kernel::add_up_(whole, others, options_.mode);
  if (Communicator* shard = options_.groups.shard) {
    const bool first = !reduced_[u].defined();
    if (first) reduced_[u] = at::empty({unit.shard_numel}, whole.options());
    shard->reduce_scatter_segments(whole, reduced_[u], unit.segments, !first);
  } else {
    reduced_[u] = reduced_[u].defined() ? reduced_[u].add_(whole) : whole;
  }
  if (id == last_reduce_[u] && options_.groups.replica)
    options_.groups.replica->all_reduce_sum(reduced_[u]);
}

// Every element of every parameter once: this rank's shard, summed over the shard group.
void Executor::norm() {
  double squares = 0;
  bool finite = true;
  const bool by_part = std::ranges::all_of(last_reduce_, [](ActionId id) { return id < 0; });
  if (by_part) {
    for (const Part& part : parts_) squares += part.squares.value, finite &= part.squares.finite;
  } else {
    for (const at::Tensor& gradient : reduced_) {
      const kernel::SquareSum sum = kernel::sum_of_squares(gradient, options_.mode);
      squares += sum.value;
      finite &= sum.finite;
    }
  }
  if (options_.groups.shard) {
    double sums[] = {squares, finite ? 0.0 : 1.0};
    options_.groups.shard->all_reduce_sum(sums);
    squares = sums[0];
    finite = sums[1] == 0;
  }
  result_.grad_norm = std::sqrt(squares);
  result_.grad_finite = finite;
  scale_ = options_.rule->gradient_scale(result_.grad_norm, finite);
  result_.updated = scale_.has_value();
}

void Executor::update(const Action& action) {
  if (action.table >= 0) return options_.tables->update(action.table);
  if (!scale_) return;
  const Part& part = parts_[static_cast<size_t>(action.lane)];
  for (size_t u = 0; u < part.stretches.size(); ++u) {
    const auto [begin, end] = part.stretches[u];
    const Unit& unit = parameters_.units()[u];
    for (const Piece& piece : unit.pieces) {
      const int64_t from = std::max(begin, piece.shard_offset);
      const int64_t to = std::min(end, piece.shard_offset + piece.shard_numel);
      if (from >= to) continue;
      options_.rule->update({piece.spec, u, from, to, unit.shard.narrow(0, from, to - from),
                             reduced_[u].narrow(0, from, to - from)},
                            *scale_);
    }
  }
}

}  // namespace trireme
