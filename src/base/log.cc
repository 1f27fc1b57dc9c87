#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>

#include "base/error.h"

namespace trireme {
namespace {

std::mutex mutex;                      // guards the two below and the order of lines on stderr
std::shared_ptr<spdlog::logger> file;  // null until log_to_file()
bool progress_line_open = false;       // stderr's cursor stands behind a progress line

void to_stderr(std::string_view text) {
  if (std::exchange(progress_line_open, false)) std::fputs("\r\033[K", stderr);
  std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
}

}  // namespace

void log(LogLevel level, std::string_view text) {
  static constexpr spdlog::level::level_enum levels[] = {spdlog::level::debug, spdlog::level::info,
                                                         spdlog::level::warn, spdlog::level::err};
  const std::lock_guard lock(mutex);
  if (file)
    file->log(levels[static_cast<int>(level)], spdlog::string_view_t(text.data(), text.size()));
  if (level == LogLevel::debug) return;
  to_stderr(level == LogLevel::warning ? concat("warning: ", text) : std::string(text));
}

void log_to_file(const std::filesystem::path& path) {
  const std::lock_guard lock(mutex);
  try {
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path.string());
    file = std::make_shared<spdlog::logger>("", std::move(sink));
  } catch (const spdlog::spdlog_ex& error) {
    throw RunError(concat("cannot open the log file ", path.string(), ": ", error.what()));
  }
  file->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  file->set_level(spdlog::level::debug);
  file->flush_on(spdlog::level::info);
}

Progress::Progress(std::string what, std::chrono::seconds interval)
    : what_(std::move(what)), interval_(interval), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (pending_) print(true);
  const std::lock_guard lock(mutex);
  if (terminal_ && std::exchange(progress_line_open, false)) std::fputc('\n', stderr);
}

void Progress::show(uint64_t done, uint64_t total, std::string_view detail) {
  const auto now = Clock::now();
  text_ = what_;
  if (total > 0)
    text_ +=
        concat(" ", format_count(done), "/", format_count(total), " (", 100 * done / total, " %)");
  else text_ += concat(" ", format_count(done));
  if (!detail.empty()) text_ += concat(" · ", detail);
  if (total > done && done > 0) {
    const std::chrono::duration<double> spent = now - start_;
    text_ += concat(" · ETA ", format_duration(spent * (static_cast<double>(total - done) /
                                                        static_cast<double>(done))));
  }
  pending_ = true;
  const bool due =
      terminal_ ? now - shown_ >= std::chrono::milliseconds(100) : now - shown_ >= interval_;
  if (due) print(false);
}

void Progress::print(bool last) {
  shown_ = Clock::now();
  pending_ = false;
  if (!terminal_) return log(LogLevel::info, text_);
  const std::lock_guard lock(mutex);
  std::fprintf(stderr, "\r\033[K%s", text_.c_str());
  std::fflush(stderr);
  progress_line_open = true;
  if (last) {
    std::fputc('\n', stderr);
    progress_line_open = false;
  }
}

std::string format_duration(std::chrono::duration<double> duration) {
  const double seconds = duration.count();
  char text[64];
  const auto whole = static_cast<long long>(seconds + 0.5);
  if (seconds < 1) std::snprintf(text, sizeof text, "%.0f ms", seconds * 1e3);
  else if (seconds < 60) std::snprintf(text, sizeof text, "%.1f s", seconds);
  else if (seconds < 3600)
    std::snprintf(text, sizeof text, "%lld min %02lld s", whole / 60, whole % 60);
  else std::snprintf(text, sizeof text, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
  return text;
}

std::string format_bytes(uint64_t bytes) {
  static constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 999.5 && unit + 1 < std::size(units)) value /= 1000, ++unit;
  char text[32];
  std::snprintf(text, sizeof text,
                unit == 0 || value >= 99.5 ? "%.0f %s"
                : value >= 9.95            ? "%.1f %s"
                                           : "%.2f %s",
                value, units[unit]);
  return text;
}

std::string format_count(uint64_t count) {
  std::string digits = std::to_string(count);
  for (size_t at = digits.size(); at > 3;) digits.insert(at -= 3, ",");
  return digits;
}

}  // namespace trireme
