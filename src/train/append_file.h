// A file that grows by whole pieces: each append() is in it as a whole, or not at all.
//
// A piece is one write() to the end of the file, so that a killed process leaves at most one torn
// last piece. When a write fails half-way (a full disk) the file is cut back to what it was and
// RunError is thrown: the next piece is never glued to a torn one. One owner, one thread at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace trireme {

class AppendFile {
 public:
  // Opens the file at its end, or makes it. RunError when that is impossible.
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view piece);
  void sync();  // waits until all of it is on the disk

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  uint64_t size_bytes_ = 0;
};

}  // namespace trireme
