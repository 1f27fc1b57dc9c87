#include "train/tensorboard.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <span>

#include "base/checksum.h"
#include "base/error.h"
#include "base/files.h"

namespace trireme {
namespace {

// Protocol buffers' wire format: a field is a varint (number << 3 | type) and its value. Field
// numbers are those of TensorFlow's event.proto, summary.proto and tensor.proto.

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

template <class T>
void put_fixed(std::string& out, T value) {
  static_assert(std::endian::native == std::endian::little);
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string varint_field(int number, uint64_t value) {
  std::string out;
  put_varint(out, static_cast<uint64_t>(number) << 3);
  put_varint(out, value);
  return out;
}

std::string double_field(int number, double value) {
  std::string out;
  put_varint(out, static_cast<uint64_t>(number) << 3 | 1);
  put_fixed(out, value);
  return out;
}

std::string float_field(int number, float value) {
  std::string out;
  put_varint(out, static_cast<uint64_t>(number) << 3 | 5);
  put_fixed(out, value);
  return out;
}

std::string bytes_field(int number, std::string_view bytes) {
  std::string out;
  put_varint(out, static_cast<uint64_t>(number) << 3 | 2);
  put_varint(out, bytes.size());
  return out.append(bytes);
}

constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5,
              kEventSessionLog = 7;
constexpr int kSessionLogStatus = 1, kSessionStart = 1;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2, kValueTensor = 8,
              kValueMetadata = 9;
constexpr int kMetadataPlugin = 1, kPluginName = 1;
constexpr int kTensorType = 1, kTensorShape = 2, kTensorString = 8, kTypeString = 7;
constexpr int kShapeDim = 2, kDimSize = 1;

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return std::rotr(crc, 15) + 0xa282ead8u;  // so that a checksum of checksums stays a good one
}

// TensorBoard reads texts as Markdown, where lines behind four spaces are left as they are.
std::string as_code(std::string_view text) {
  std::string out = "    ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "    ";
  }
  return out;
}

double system_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0 || name[0] == 0) return "localhost";
  return name;
}

// The new file's path. Its stamp is now, and after that of every file that is there, even when the
// clock of the day went back or two attempts began within a second.
fs::path next_file(const fs::path& directory, double now_seconds) {
  make_directories(directory);
  uint64_t stamp = static_cast<uint64_t>(std::max(now_seconds, 0.0));
  for (const auto& entry : fs::directory_iterator(directory)) {
    unsigned long long other = 0;
    if (std::sscanf(entry.path().filename().c_str(), "events.out.tfevents.%llu.", &other) == 1 &&
        other < 9'999'999'999)  // ten digits, so that names sort as numbers
      stamp = std::max<uint64_t>(stamp, other + 1);
  }
  char digits[24];
  std::snprintf(digits, sizeof digits, "%010llu", static_cast<unsigned long long>(stamp));
  return directory / concat("events.out.tfevents.", digits, ".", host_name(), ".", ::getpid());
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const fs::path& directory, std::string unit,
                                     int64_t keep_through_step, WallClock clock)
    : unit_(std::move(unit)),
      clock_(clock ? std::move(clock) : system_seconds),
      file_(next_file(directory, clock_())) {
  write_event(bytes_field(kEventFileVersion, "brain.Event:2"));
  write_event(varint_field(kEventStep, static_cast<uint64_t>(keep_through_step + 1)) +
              bytes_field(kEventSessionLog, varint_field(kSessionLogStatus, kSessionStart)));
}

void TensorBoardWriter::add(const StepMetrics& step) {
  NamedValues values = {{"loss", step.loss},
                        {"learning_rate", step.learning_rate},
                        {"grad_norm", step.grad_norm},
                        {"step_seconds", step.step_seconds},
                        {unit_ + "_per_second", step.units_per_second}};
  if (step.mfu) values.emplace_back("mfu", *step.mfu);
  values.emplace_back("peak_memory_bytes", static_cast<double>(step.peak_memory_bytes));
  values.insert(values.end(), step.more.begin(), step.more.end());
  scalars(step.step, values, "");
}

void TensorBoardWriter::add(const EvalMetrics& evaluation) {
  scalars(evaluation.step, evaluation.values,
          evaluation.split.empty() ? "eval/" : "eval/" + evaluation.split + "/");
}

void TensorBoardWriter::add(const SampleText& sample) {
  samples_of_step_ = sample_step_ == sample.step ? samples_of_step_ + 1 : 0;
  sample_step_ = sample.step;
  const std::string shape = bytes_field(kShapeDim, varint_field(kDimSize, 1));
  const std::string tensor = varint_field(kTensorType, kTypeString) +
                             bytes_field(kTensorShape, shape) +
                             bytes_field(kTensorString, as_code(sample.prompt + sample.text));
  const std::string metadata = bytes_field(kMetadataPlugin, bytes_field(kPluginName, "text"));
  const std::string value = bytes_field(kValueTag, concat("sample/", samples_of_step_)) +
                            bytes_field(kValueTensor, tensor) +
                            bytes_field(kValueMetadata, metadata);
  write_event(varint_field(kEventStep, static_cast<uint64_t>(sample.step)) +
              bytes_field(kEventSummary, bytes_field(kSummaryValue, value)));
}

void TensorBoardWriter::scalars(int64_t step, const NamedValues& values,
                                const std::string& prefix) {
  std::string summary;
  for (const auto& [name, value] : values)
    summary += bytes_field(kSummaryValue, bytes_field(kValueTag, prefix + name) +
                                              float_field(kValueSimple, static_cast<float>(value)));
  write_event(varint_field(kEventStep, static_cast<uint64_t>(step)) +
              bytes_field(kEventSummary, summary));
}

// A TFRecord: the length and its checksum, the event and its checksum.
void TensorBoardWriter::write_event(std::string_view fields) {
  const std::string event = double_field(kEventWallTime, clock_()).append(fields);
  std::string record;
  put_fixed(record, static_cast<uint64_t>(event.size()));
  put_fixed(record, masked_crc(record));
  record.append(event);
  put_fixed(record, masked_crc(event));
  file_.append(record);
}

}  // namespace trireme
