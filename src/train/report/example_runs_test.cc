#include "train/report/example_runs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "train/ledger.h"
#include "train/metrics_file.h"
#include "train/test_directory.h"

namespace trireme::report {
namespace {

using std::chrono::nanoseconds;

constexpr const char* kRecipe =
    R"(# frozen by trireme 0.1.0 on 2026-05-01, 2 x Xeon 2.1 GHz, torch 2.13.0
task = "pretrain"

[run]
name = "code-nano"
steps = 300
seed = 1

[model]
family = "llama"
layers = 6
hidden = 256
heads = 8
kv_heads = 4
ffn = 688
tie_embeddings = true

[data]
source = ["python-stdlib"]
tokenizer = { train = "bpe", vocab = 4096 }
sequence = 256
held_out = 0.05      # by document

[optimizer]
kind = "adamw"
lr = 1e-3
betas = [0.9, 0.95]
)";

constexpr const char* kSamples[] = {
    R"((self, name, value):
        """Return a list of the names of the given value.

        The optional second argument is the default.
        """
        if not isinstance(value, str):
            raise TypeError("expected str, got %r" % type(value))
        self._names[name] = value
        return [n for n in self._names if n.startswith(name)]
)",
    R"( _Parser(object):
    def __init__(self, stream, encoding=None):
        self.stream = stream
        self.encoding = encoding or "utf-8"

    def read(self, n=-1):
	return self.stream.read(n)      # a line that is rather long, so that somebody sees how it wraps on a small screen
)"};

struct FakeTime {
  nanoseconds now{0};
  double day = 1'777'636'800;  // 2026-05-01 12:00 UTC

  Ledger::Options options(double before_seconds) {
    return {.write_every = std::chrono::hours(1),
            .before = seconds(before_seconds),
            .monotonic = [this] { return now; },
            .wall_clock =
                [this] {
                  return std::chrono::system_clock::time_point(
                      std::chrono::duration_cast<std::chrono::system_clock::duration>(seconds(day) +
                                                                                      now));
                }};
  }
  static nanoseconds seconds(double s) { return nanoseconds(std::llround(s * 1e9)); }
  void spend(Ledger& ledger, Bucket bucket, double s) {
    const auto scope = ledger.in(bucket);
    now += seconds(s);
  }
};

double schedule(double step, double steps) {
  const double warmup = std::min(20.0, steps / 10);
  const double rate =
      step < warmup ? step / warmup
                    : 0.1 + 0.45 * (1 + std::cos(3.14159265 * (step - warmup) / (steps - warmup)));
  return 1e-3 * rate;
}

// A loss that falls as a power of the step, as such losses do, under noise.
double expected_loss(double step) { return 1.55 + 6.8 * std::pow(1 + step / 8, -0.42); }

struct Simulated {
  Ledger& ledger;
  FakeTime& time;
  MetricsFile& metrics;
  RandomStream noise{3, "example"};

  void step(int64_t number, int64_t steps) {
    const auto i = static_cast<uint64_t>(number);
    const auto x = static_cast<double>(number);
    const double seconds = 1.33 * (1 + 0.03 * noise.normal(10 * i)) + (number == 1 ? 0.9 : 0) +
                           (noise.uniform(10 * i + 1) < 0.01 ? 0.5 : 0);
    time.spend(ledger, Bucket::data, 0.004 * seconds);
    time.spend(ledger, Bucket::compute, 0.90 * seconds);
    time.spend(ledger, Bucket::update, 0.08 * seconds);
    time.now += FakeTime::seconds(0.016 * seconds);
    const bool spike = noise.uniform(10 * i + 2) < 0.002;
    metrics.add(
        StepMetrics{.step = number,
                    .units = number * 4096,
                    .loss = expected_loss(x) + 0.09 * noise.normal(10 * i + 3) + (spike ? 1.5 : 0),
                    .learning_rate = schedule(x, static_cast<double>(steps)),
                    .grad_norm = (0.45 + 2.2 * std::exp(-x / 40)) *
                                 std::exp(0.18 * noise.normal(10 * i + 4)) * (spike ? 20 : 1),
                    .step_seconds = seconds,
                    .units_per_second = 4096 / seconds,
                    .mfu = 0.83 * 1.33 / seconds,
                    .peak_memory_bytes = 812'345'600,
                    .parts = StepParts{0.74 * seconds, 0.1 * seconds, 0.08 * seconds,
                                       0.05 * seconds, 0.03 * seconds}});
    ledger.step_done(number);
  }

  void evaluate(int64_t number) {
    const double loss = expected_loss(static_cast<double>(number)) + 0.06;
    time.spend(ledger, Bucket::evaluation, 3.1);
    metrics.add(EvalMetrics{.step = number,
                            .units = number * 4096,
                            .values = {{"loss", loss},
                                       {"bits_per_byte", loss / std::log(2.0) / 3.02},
                                       {"perplexity", std::exp(loss)}},
                            .seconds = 3.1});
    time.spend(ledger, Bucket::sampling, 1.2);
    metrics.add(SampleText{.step = number, .prompt = "def", .text = kSamples[0]});
    metrics.add(SampleText{.step = number, .prompt = "import os\n\n\nclass", .text = kSamples[1]});
    time.spend(ledger, Bucket::checkpoint, 0.4);
  }
};

ReportFacts pretraining_facts() {
  ReportFacts facts;
  facts.title = "code-nano";
  facts.task = "pretrain";
  facts.subtitle =
      "A decoder of 5.8 million parameters, trained on the Python standard library's own source.";
  facts.unit = "tokens";
  facts.loss_unit = "nats per token";
  facts.held_out = {{.key = "bits_per_byte", .label = "bits per byte"},
                    {.key = "loss", .label = "loss"}};
  facts.mfu_convention = "causal attention, of 182 GFLOP/s (sgemm, measured)";
  facts.model = {{"family", "llama"},
                 {"parameters", "5,794,048"},
                 {"of them embeddings", "1,048,576 (tied)"},
                 {"layers × hidden", "6 × 256"},
                 {"heads", "8, of them 4 for keys and values"},
                 {"feed-forward", "688 (SwiGLU)"},
                 {"vocabulary", "4,096 (byte-level BPE)"}};
  facts.layout = {{"ranks", "1"},
                  {"mesh", "pipeline 1 · replica 1 · shard 1 · context 1 · tensor 1"},
                  {"batch", "16 sequences of 256, micro-batches of 4"},
                  {"precision", "fp32"}};
  facts.memory = {{"parameters", "23.2 MB"},
                  {"gradients", "23.2 MB"},
                  {"moments", "46.4 MB"},
                  {"activations", "719 MB"},
                  {"predicted peak", "812 MB"}};
  facts.machine = {{"processor", "Intel Xeon @ 2.10 GHz, 2 cores"},
                   {"memory", "24 GB"},
                   {"system", "Debian GNU/Linux 12"},
                   {"trireme", "0.1.0 (9b1c2d3)"},
                   {"torch", "2.13.0"}};
  return facts;
}

}  // namespace

ExampleRun example_pretraining(const fs::path& dir, int64_t steps, int64_t every) {
  make_directories(dir);
  write_file(dir / "recipe.toml", kRecipe);
  FakeTime time;
  Ledger ledger(dir / "ledger.json", 0, time.options(4.8));
  MetricsFile metrics(dir / "metrics.jsonl", "tokens");
  Simulated run{ledger, time, metrics};
  ledger.started();
  for (int64_t step = 1; step <= steps; ++step) {
    run.step(step, steps);
    if (step % every == 0) run.evaluate(step);
  }
  ledger.finish(Outcome::finished);
  return {dir, pretraining_facts()};
}

ExampleRun example_stopped(const fs::path& dir) {
  make_directories(dir);
  write_file(dir / "recipe.toml", kRecipe);
  FakeTime time;
  Ledger ledger(dir / "ledger.json", 0, time.options(4.8));
  MetricsFile metrics(dir / "metrics.jsonl", "tokens");
  Simulated run{ledger, time, metrics};
  ledger.started();
  run.step(1, 300);
  time.spend(ledger, Bucket::checkpoint, 0.4);
  ledger.finish(Outcome::stopped, "SIGINT");
  return {dir, pretraining_facts()};
}

ExampleRun example_failed(const fs::path& dir) {
  make_directories(dir);
  write_file(dir / "recipe.toml", kRecipe);
  FakeTime time;
  {
    Ledger killed(dir / "ledger.json", 0, time.options(4.8));
    MetricsFile metrics(dir / "metrics.jsonl", "tokens");
    Simulated run{killed, time, metrics};
    killed.started();
    for (int64_t step = 1; step <= 121; ++step) {
      run.step(step, 300);
      if (step == 100) run.evaluate(step);
    }
    killed.write();
  }
  time.day += 7200;
  Ledger ledger(dir / "ledger.json", 100, time.options(3.9));
  MetricsFile metrics(dir / "metrics.jsonl", "tokens", 100);
  Simulated run{ledger, time, metrics};
  ledger.started();
  for (int64_t step = 101; step <= 163; ++step) run.step(step, 300);
  metrics.add(StepMetrics{.step = 164,
                          .units = 164 * 4096,
                          .loss = std::nan(""),
                          .learning_rate = schedule(164, 300),
                          .grad_norm = HUGE_VAL,
                          .step_seconds = 1.3,
                          .units_per_second = 3150,
                          .mfu = 0.8,
                          .peak_memory_bytes = 812'345'600});
  ledger.finish(Outcome::failed,
                "the loss of step 164 is not finite; the first bad tensor is the output of "
                "model.layers.3.mlp.down_proj (12 of 1,048,576 values, the first at [0, 17, 203])");
  ExampleRun out{dir, pretraining_facts()};
  out.facts.incidents = {{164, "the loss is NaN; step-00000100 is the last good checkpoint"}};
  return out;
}

ExampleRun example_clicks(const fs::path& dir) {
  make_directories(dir);
  write_file(dir / "recipe.toml",
             "task = \"ctr\"\n\n[data]\nsource = [\"movielens-100k\"]\nlabel = \"rating >= "
             "4\"\n\n[feature.user]\nkind = \"id\"\n");
  FakeTime time;
  Ledger ledger(dir / "ledger.json", 0, time.options(1.1));
  MetricsFile metrics(dir / "metrics.jsonl", "samples");
  const RandomStream noise(5, "clicks");
  ledger.started();
  const int64_t steps = 4000;
  for (int64_t step = 1; step <= steps; ++step) {
    const auto i = static_cast<uint64_t>(step);
    const double x = static_cast<double>(step) / steps;
    time.spend(ledger, Bucket::data, 0.0011);
    time.spend(ledger, Bucket::communication, 0.0007);
    time.spend(ledger, Bucket::compute, 0.0034);
    time.spend(ledger, Bucket::update, 0.0019);
    const double loss = 0.552 + 0.141 * std::exp(-9 * x) + 0.02 * noise.normal(4 * i);
    metrics.add(StepMetrics{.step = step,
                            .units = step * 512,
                            .loss = loss,
                            .learning_rate = 1e-3,
                            .grad_norm = 0.08 * std::exp(0.3 * noise.normal(4 * i + 1)),
                            .step_seconds = 0.0071,
                            .units_per_second = 72'000 + 900 * noise.normal(4 * i + 2),
                            .peak_memory_bytes = 48'000'000});
    ledger.step_done(step);
    if (step % 200 != 0) continue;
    time.spend(ledger, Bucket::evaluation, 0.3);
    const double auc = 0.7712 - 0.19 * std::exp(-7 * x) - 0.012 * std::max(0.0, x - 0.7);
    metrics.add(EvalMetrics{.step = step,
                            .units = step * 512,
                            .split = "valid",
                            .values = {{"auc", auc},
                                       {"gauc", auc - 0.031},
                                       {"logloss", 0.558 + 0.12 * std::exp(-9 * x)},
                                       {"normalized_entropy", 0.81 + 0.17 * std::exp(-9 * x)},
                                       {"calibration", 1 + 0.1 * std::exp(-5 * x)}},
                            .seconds = 0.3});
  }
  time.spend(ledger, Bucket::evaluation, 0.3);
  metrics.add(EvalMetrics{.step = 2800,
                          .units = 2800 * 512,
                          .split = "test",
                          .values = {{"auc", 0.7681},
                                     {"gauc", 0.7379},
                                     {"logloss", 0.5604},
                                     {"normalized_entropy", 0.8135},
                                     {"calibration", 1.004}},
                          .seconds = 0.3});
  ledger.finish(Outcome::finished);

  ReportFacts facts;
  facts.title = "movielens-lr";
  facts.task = "ctr";
  facts.unit = "samples";
  facts.loss_key = "logloss";
  facts.held_out = {{.key = "auc", .label = "AUC", .higher_is_better = true},
                    {.key = "gauc", .label = "GAUC by user", .higher_is_better = true},
                    {.key = "logloss", .label = "log-loss"}};
  facts.headline = {{"Rows", "9,992", "in 19 tables"}};
  facts.model = {{"family", "lr"}, {"rows", "9,992"}, {"tables", "user, item, genres, hour"}};
  facts.machine = {{"trireme", "0.1.0"}};
  return {dir, facts};
}

ExampleRun example_hostile(const fs::path& dir) {
  make_directories(dir);
  write_file(dir / "recipe.toml",
             "# " + kHostile + "\n[" + kHostile + "]\nname = \"" + kHostile + "\"\n" + kHostile);
  FakeTime time;
  Ledger ledger(dir / "ledger.json", 0, time.options(1));
  MetricsFile metrics(dir / "metrics.jsonl", "samples");
  for (int64_t step = 1; step <= 30; ++step) {
    metrics.add(StepMetrics{.step = step,
                            .units = step,
                            .loss = 1.0 / static_cast<double>(step),
                            .more = {{kHostile, 1}}});
    ledger.step_done(step);
  }
  time.now += std::chrono::seconds(3);
  metrics.add(EvalMetrics{.step = 30, .split = kHostile, .values = {{"loss", 1}, {kHostile, 2}}});
  metrics.add(SampleText{.step = 30, .prompt = kHostile, .text = kHostile});
  ledger.finish(Outcome::failed, kHostile);

  ReportFacts facts;
  for (std::string* text :
       {&facts.title, &facts.task, &facts.subtitle, &facts.loss_unit, &facts.mfu_convention})
    *text = kHostile;
  facts.held_out = {{.key = "loss", .label = kHostile}, {.key = kHostile, .label = kHostile}};
  facts.headline = {{kHostile, kHostile, kHostile}};
  facts.model = facts.layout = facts.memory = facts.machine = {{kHostile, kHostile}};
  facts.incidents = {{3, kHostile}};
  return {dir, facts};
}

// The pages that tests/test_report.py takes apart.
TEST(Report, WritesExamples) {
  const TestDirectory own;
  for (const ExampleRun& run : {example_pretraining(example_directory(own, "short"), 300, 100),
                                example_pretraining(example_directory(own, "long"), 20'000, 500),
                                example_stopped(example_directory(own, "stopped")),
                                example_failed(example_directory(own, "failed")),
                                example_clicks(example_directory(own, "clicks")),
                                example_hostile(example_directory(own, "hostile"))}) {
    write_report(run.dir, run.facts);
    write_file(run.dir / "summary.txt", summary_text(run.dir, run.facts));
    EXPECT_EQ(read_file(run.dir / "report.html"), report_html(run.dir, run.facts));
  }
}

}  // namespace trireme::report
