// What a run says while it works: to stderr for the person, and to its log file for later.
//
// log() lines carry time and level in the file and only the text on stderr. Results never go
// through here: they belong to stdout. Any thread; a line is written whole.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace trireme {

enum class LogLevel { debug, info, warning, error };

void log(LogLevel level, std::string_view text);
inline void log_info(std::string_view text) { log(LogLevel::info, text); }
inline void log_warning(std::string_view text) { log(LogLevel::warning, text); }

// Also writes what follows to this file, appending. RunError if it cannot be opened.
void log_to_file(const std::filesystem::path& path);

// Long work shows how far it is: on a terminal one line that is rewritten ten times a second at
// most, elsewhere a plain line every `interval`. The last state is always shown. One thread. A
// log() line in between does not garble it.
class Progress {
 public:
  explicit Progress(std::string what, std::chrono::seconds interval = std::chrono::seconds(10));
  ~Progress();  // ends the line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of `total` (0: unknown) and whatever else is worth seeing, such as a speed or a loss.
  // Adds percent and ETA.
  void show(uint64_t done, uint64_t total, std::string_view detail = {});

 private:
  void print(bool last);

  using Clock = std::chrono::steady_clock;
  std::string what_, text_;
  std::chrono::seconds interval_;
  Clock::time_point start_ = Clock::now(), shown_{};
  bool terminal_, pending_ = false;
};

// "1 h 02 min", "3 min 04 s", "5.2 s", "12 ms".
std::string format_duration(std::chrono::duration<double> duration);
// "1.23 GB", "456 MB", "789 kB", "12 B": decimal units.
std::string format_bytes(uint64_t bytes);
// 12,345,678
std::string format_count(uint64_t count);

}  // namespace trireme
