// Files as the rest of Trireme uses them: read whole, mapped, written atomically, locked.
//
// Nothing is ever half-written under its final name: write_file() and AtomicFile write beside it,
// sync, rename and sync the directory. Failures throw RunError with path, operation and the
// system's reason; a path that the user gave and that cannot be read is an InputError. Any thread,
// on different paths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

namespace fs = std::filesystem;

// The whole file. InputError when it cannot be opened, with the path and the reason.
std::string read_file(const fs::path& path);

// Replaces `path` as a whole, durably: after a crash there is either the old or the new content.
void write_file(const fs::path& path, std::string_view content);

// A file that appears under its final name at commit(), durably, or not at all.
class AtomicFile {
 public:
  explicit AtomicFile(fs::path path);  // opens `path` + ".partial-<pid>-<n>"
  ~AtomicFile();                       // without commit(): removes the partial file
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  void write_at(uint64_t offset, const void* data,
                size_t bytes);  // does not move the position of write()
  uint64_t position() const { return position_; }
  void commit();

 private:
  fs::path path_, partial_;
  int fd_ = -1;
  uint64_t position_ = 0;
};

// A file mapped for reading. An empty file maps to an empty span.
class MappedFile {
 public:
  explicit MappedFile(const fs::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&&) = delete;
  std::span<const std::byte> bytes() const { return {data_, bytes_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), bytes_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// An exclusive lock that ends with the process, however it ends.
class FileLock {
 public:
  // nullopt: another process holds it. Makes the file if it is missing and writes the own pid into
  // it.
  static std::optional<FileLock> try_lock(const fs::path& path);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

// Makes the directory and its parents. InputError with the reason when that is impossible.
void make_directories(const fs::path& path);

// Makes the names in a directory durable.
void sync_directory(const fs::path& path);

}  // namespace trireme
