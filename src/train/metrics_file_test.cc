#include "train/metrics_file.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/files.h"
#include "base/random.h"
#include "train/test_directory.h"

namespace trireme {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");

StepMetrics step_metrics(int64_t step, double loss = 2.5) {
  return {.step = step,
          .units = step * 4096,
          .loss = loss,
          .learning_rate = 1e-3,
          .grad_norm = 0.75,
          .step_seconds = 1.25,
          .units_per_second = 3276.8,
          .mfu = 0.5,
          .peak_memory_bytes = 123'456'789,
          .more = {}};
}

TEST(MetricsFile, LinesAreWhatTheContractSays) {
  const TestDirectory dir;
  MetricsFile file(dir / "metrics.jsonl", "tokens");
  file.add(step_metrics(1));
  StepMetrics other = step_metrics(2, 3);
  other.mfu.reset();
  other.parts = {0.5, 0.25, 0.125, 0.25, 0.125};
  other.more = {{"aux_loss", -0.0}};
  file.add(other);
  file.add(EvalMetrics{.step = 2,
                       .units = 8192,
                       .split = "valid",
                       .values = {{"loss", 2.25}, {"bits_per_byte", 1.5}},
                       .seconds = 0.5});
  file.add(SampleText{.step = 2, .prompt = "def", .text = " f(x):\n\t\"\\"});
  EXPECT_EQ(
      read_file(dir / "metrics.jsonl"),
      R"({"step":1,"tokens":4096,"loss":2.5,"learning_rate":0.001,"grad_norm":0.75,"step_seconds":1.25,"tokens_per_second":3276.8,"mfu":0.5,"peak_memory_bytes":123456789}
{"step":2,"tokens":8192,"loss":3.0,"learning_rate":0.001,"grad_norm":0.75,"step_seconds":1.25,"tokens_per_second":3276.8,"peak_memory_bytes":123456789,"gemm_seconds":0.5,"attention_seconds":0.25,"other_compute_seconds":0.125,"update_seconds":0.25,"waiting_seconds":0.125,"aux_loss":-0.0}
{"kind":"eval","step":2,"tokens":8192,"split":"valid","loss":2.25,"bits_per_byte":1.5,"eval_seconds":0.5}
{"kind":"sample","step":2,"prompt":"def","text":" f(x):\n\t\"\\"}
)");
}

// Any 64 bits that are a finite double; the oracle is the C library's own reading of the text.
TEST(MetricsFile, DoublesReadBackToTheSameBits) {
  const uint64_t seed = 7;
  SCOPED_TRACE(seed);
  const RandomStream random(seed, "bits");
  std::vector<double> values = {0.0,
                                -0.0,
                                1.0,
                                0.1,
                                1e22,
                                1e23,
                                5e-324,
                                -2.2250738585072014e-308,
                                std::numeric_limits<double>::max(),
                                9007199254740993.0};
  for (uint64_t i = 0; i < 3000; ++i) values.push_back(std::bit_cast<double>(random.bits(i)));
  std::erase_if(values, [](double x) { return !std::isfinite(x); });

  const TestDirectory dir;
  const auto path = dir / "metrics.jsonl";
  {
    MetricsFile file(path, "tokens");
    for (size_t i = 0; i < values.size(); ++i)
      file.add(step_metrics(static_cast<int64_t>(i), values[i]));
  }
  const std::string text = read_file(path);
  const Metrics metrics = read_metrics(path, "tokens");
  ASSERT_EQ(metrics.steps.size(), values.size());
  size_t at = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    at = text.find("\"loss\":", at) + 7;
    const uint64_t expected = std::bit_cast<uint64_t>(values[i]);
    EXPECT_EQ(std::bit_cast<uint64_t>(std::strtod(text.c_str() + at, nullptr)), expected);
    EXPECT_EQ(std::bit_cast<uint64_t>(metrics.steps[i].loss), expected);
  }
}

TEST(MetricsFile, NumbersThatAreNotFiniteAreStrings) {
  const TestDirectory dir;
  const auto path = dir / "metrics.jsonl";
  MetricsFile file(path, "tokens");
  for (const double loss : {kNan, kInfinity, -kInfinity}) file.add(step_metrics(1, loss));
  const std::string text = read_file(path);
  EXPECT_NE(text.find(R"("loss":"NaN")"), std::string::npos);
  EXPECT_NE(text.find(R"("loss":"-Infinity")"), std::string::npos);
  const Metrics metrics = read_metrics(path, "tokens");
  ASSERT_EQ(metrics.steps.size(), 3u);
  EXPECT_TRUE(std::isnan(metrics.steps[0].loss));
  EXPECT_EQ(metrics.steps[1].loss, kInfinity);
  EXPECT_EQ(metrics.steps[2].loss, -kInfinity);
}

TEST(MetricsFile, ReadingGivesBackWhatWasAdded) {
  const TestDirectory dir;
  const auto path = dir / "metrics.jsonl";
  MetricsFile file(path, "samples");
  StepMetrics step = step_metrics(5);
  step.more = {{"aux_loss", 0.25}};
  file.add(step);
  file.add(EvalMetrics{
      .step = 5, .units = 20480, .split = "test", .values = {{"auc", 0.75}}, .seconds = 2});
  file.add(SampleText{.step = 5, .prompt = "a\xff", .text = std::string("b\0c", 3)});

  const Metrics read = read_metrics(path, "samples");
  ASSERT_EQ(read.steps.size(), 1u);
  EXPECT_EQ(read.steps[0].units, 20480);
  EXPECT_EQ(read.steps[0].units_per_second, 3276.8);
  EXPECT_EQ(read.steps[0].mfu, 0.5);
  EXPECT_EQ(read.steps[0].peak_memory_bytes, 123'456'789);
  EXPECT_EQ(read.steps[0].more, step.more);
  ASSERT_EQ(read.evaluations.size(), 1u);
  EXPECT_EQ(read.evaluations[0].split, "test");
  EXPECT_EQ(read.evaluations[0].values, (NamedValues{{"auc", 0.75}}));
  EXPECT_EQ(read.evaluations[0].seconds, 2);
  ASSERT_EQ(read.samples.size(), 1u);
  EXPECT_EQ(read.samples[0].prompt, "a\xef\xbf\xbd");  // a byte that is not UTF-8
  EXPECT_EQ(read.samples[0].text, std::string("b\0c", 3));
  EXPECT_EQ(read.unreadable_lines, 0);
}

TEST(MetricsFile, ResumingCutsWhatComesAfterTheStep) {
  const TestDirectory dir;
  const auto path = dir / "metrics.jsonl";
  {
    MetricsFile file(path, "tokens");
    EXPECT_EQ(file.last_evaluation(), MetricsFile::kNothing);
    for (int64_t step = 1; step <= 6; ++step) {
      file.add(step_metrics(step));
      if (step % 2 == 0) file.add(EvalMetrics{.step = step});
    }
    EXPECT_EQ(file.last_evaluation(), 6);
  }
  {
    MetricsFile file(path, "tokens", 4);
    EXPECT_EQ(file.last_evaluation(), 4);
    file.add(step_metrics(5, 9.0));
  }
  const Metrics metrics = read_metrics(path, "tokens");
  ASSERT_EQ(metrics.steps.size(), 5u);
  EXPECT_EQ(metrics.steps[4].loss, 9.0);
  ASSERT_EQ(metrics.evaluations.size(), 2u);
  EXPECT_EQ(metrics.evaluations[1].step, 4);

  const MetricsFile nothing(path, "tokens");
  EXPECT_EQ(read_file(path), "");
}

// A run may be killed after any byte: whole lines stay, what is left of the last one goes, and the
// lines written after the resume stand alone.
TEST(MetricsFile, ATornLineIsLeftOutAndCutWhereverItTears) {
  const TestDirectory dir;
  const auto path = dir / "metrics.jsonl";
  {
    MetricsFile(path, "tokens").add(step_metrics(1));
  }
  const std::string first = read_file(path);
  {
    MetricsFile(path, "tokens", 1).add(step_metrics(2));
  }
  const std::string both = read_file(path);
  for (size_t bytes = first.size(); bytes < both.size(); ++bytes) {
    write_file(path, both.substr(0, bytes));
    EXPECT_EQ(read_metrics(path, "tokens").steps.size(), 1u) << bytes;
    {
      MetricsFile(path, "tokens", 2).add(step_metrics(2));
    }
    EXPECT_EQ(read_file(path), both) << bytes;
  }
}

TEST(MetricsFile, DamagedLinesAreCountedAndGoodOnesKept) {
  const TestDirectory dir;
  const auto path = dir / "metrics.jsonl";
  const std::string good = "{\"step\":1,\"tokens\":2,\"loss\":0.5}\n";
  const std::string bad = std::string("{\"step\":\"one\"}\n[]\n7\nnonsense\n{\"loss\":1}\n\n") +
                          "{\"step\":2,\"loss\":[]}\n{\"step\":3,\"kind\":7}\n" +
                          "{\"step\":3,\"kind\":\"sample\"}\n" + std::string(40, '\0');
  const std::string later = "{\"kind\":\"note\",\"step\":1,\"text\":\"of a later version\"}\n";
  write_file(path, good + later + bad);
  const Metrics metrics = read_metrics(path, "tokens");
  EXPECT_EQ(metrics.steps.size(), 1u);
  EXPECT_EQ(metrics.steps[0].loss, 0.5);
  EXPECT_EQ(metrics.unreadable_lines, 10);
  const MetricsFile file(path, "tokens", 1);
  EXPECT_EQ(read_file(path), good + later);
}

TEST(MetricsFile, AMissingFileReadsAsAnEmptyOne) {
  const TestDirectory dir;
  EXPECT_TRUE(read_metrics(dir / "none", "tokens").steps.empty());
  EXPECT_THROW(MetricsFile(dir / "no" / "directory", "tokens"), RunError);
}

}  // namespace
}  // namespace trireme
