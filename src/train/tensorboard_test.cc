#include "train/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "train/test_directory.h"

// The contents of events are read back by TensorBoard itself, in tests/test_report.py.

namespace trireme {
namespace {

// CRC-32C from its definition, one bit at a time.
uint32_t naive_masked_crc(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

template <class T>
T take(std::string_view& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  bytes.remove_prefix(sizeof value);
  return value;
}

StepMetrics step_metrics(int64_t step) {
  return {.step = step,
          .units = step * 100,
          .loss = 8.0 / static_cast<double>(step),
          .learning_rate = 1e-3,
          .grad_norm = 0.5,
          .step_seconds = 0.25,
          .units_per_second = 400,
          .mfu = 0.5,
          .peak_memory_bytes = 1 << 20,
          .more = {{"aux_loss", std::nan("")}}};
}

TEST(TensorBoard, RecordsAreFramedByLengthAndChecksums) {
  const TestDirectory dir;
  TensorBoardWriter writer(dir.path(), "tokens");
  for (int64_t step = 1; step <= 3; ++step) writer.add(step_metrics(step));
  writer.add(SampleText{.step = 3, .prompt = "a", .text = std::string(300, 'b')});

  const std::string content = read_file(writer.path());
  std::string_view rest = content;
  int records = 0;
  for (; !rest.empty(); ++records) {
    ASSERT_GE(rest.size(), 16u);
    const std::string_view length_bytes = rest.substr(0, 8);
    const auto length = take<uint64_t>(rest);
    EXPECT_EQ(take<uint32_t>(rest), naive_masked_crc(length_bytes));
    ASSERT_GE(rest.size(), length + 4);
    const std::string_view event = rest.substr(0, length);
    rest.remove_prefix(length);
    EXPECT_EQ(take<uint32_t>(rest), naive_masked_crc(event));
  }
  EXPECT_EQ(records, 2 + 3 + 1);  // the file's version, its start, the steps, the sample
}

// Readers take the files in the order of their names, so a name must come after the older ones
// even when attempts follow within a second or the clock of the day went back.
TEST(TensorBoard, ANewFileSortsAfterTheOldOnes) {
  const TestDirectory dir;
  std::vector<std::string> names;
  for (const double now : {1'700'000'000.0, 1'700'000'000.5, 1'600'000'000.0, 1'700'000'005.0, 0.0})
    names.push_back(
        TensorBoardWriter(dir.path(), "tokens", 0, [now] { return now; }).path().filename());
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(TensorBoard, ADirectoryThatCannotBeMadeIsAnError) {
  const TestDirectory dir;
  write_file(dir / "file", "");
  EXPECT_THROW(TensorBoardWriter(dir / "file" / "events", "tokens"), Error);
}

// A run of six steps that was killed while it wrote the sixth, resumed after step 3.
TEST(TensorBoard, WritesAnExampleOfAResumedRun) {
  const TestDirectory dir;
  const auto events = example_directory(dir, "tensorboard");
  fs::path first;
  {
    TensorBoardWriter writer(events, "tokens");
    first = writer.path();
    for (int64_t step = 1; step <= 6; ++step) {
      writer.add(step_metrics(step));
      writer.add(EvalMetrics{.step = step, .values = {{"loss", 10.0 + static_cast<double>(step)}}});
    }
  }
  const std::string content = read_file(first);
  write_file(first, content.substr(0, content.size() - 5));
  TensorBoardWriter writer(events, "tokens", 3);
  for (int64_t step = 4; step <= 5; ++step) writer.add(step_metrics(step));
  writer.add(EvalMetrics{
      .step = 5, .units = 500, .split = "test", .values = {{"auc", 0.75}}, .seconds = 1});
  writer.add(SampleText{.step = 5, .prompt = "def f", .text = "(x):\n  return <b>`x`</b>"});
  writer.add(SampleText{.step = 5, .prompt = "class", .text = " \xc3\xa9"});
  EXPECT_LT(first.filename(), writer.path().filename());
}

}  // namespace
}  // namespace trireme
