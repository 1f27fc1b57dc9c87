// The few file operations that checkpoints need, behind one interface, so that a layer that counts,
// cuts or fails them (fault_storage.h), a memory (memory_storage.h) or an object store can stand
// below the store.
//
// What survives a crash is what POSIX promises, and no more: the bytes of a file after sync(), the
// names in a directory after sync_directory(). Threads: any, on different files; a ReadFile serves
// several at once. Errors: StorageError, whose text has operation, path and reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trireme {

namespace fs = std::filesystem;

// An operation failed. code() is the system's errno, so that a run can tell a full disk from a
// broken one.
class StorageError : public RunError {
 public:
  StorageError(std::string_view operation, const fs::path& path, int code);
  int code() const { return code_; }

 private:
  int code_;
};

// A new file, written from its beginning to its end.
class WriteFile {
 public:
  virtual ~WriteFile() = default;
  virtual void write(std::span<const std::byte> data) = 0;
  virtual void sync() = 0;   // what was written is durable
  virtual void close() = 0;  // once, after the last write

  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
};

class ReadFile {
 public:
  virtual ~ReadFile() = default;
  virtual int64_t bytes() const = 0;  // when it was opened
  // Fills `out` from `offset` and returns how many bytes there were: fewer only at the end.
  virtual int64_t read(int64_t offset, std::span<std::byte> out) const = 0;
};

struct StorageEntry {
  enum class Type { file, directory, other };
  std::string name;
  Type type = Type::file;
  int64_t bytes = 0;  // of a file
};

class Storage {
 public:
  virtual ~Storage() = default;

  virtual std::unique_ptr<WriteFile> create(const fs::path& path) = 0;  // EEXIST if it is there
  virtual std::unique_ptr<ReadFile> open(const fs::path& path) = 0;     // a regular file only
  virtual void make_directory(const fs::path& path) = 0;                // the parent exists
  // Atomic. A file replaces a file; a directory takes a name that is free.
  virtual void rename(const fs::path& from, const fs::path& to) = 0;
  virtual void remove(const fs::path& path) = 0;  // a file or an empty directory
  // Sorted by name; nullopt: there is no such directory.
  virtual std::optional<std::vector<StorageEntry>> list(const fs::path& directory) = 0;
  virtual void sync_directory(const fs::path& path) = 0;
  virtual int64_t free_bytes(const fs::path& directory) = 0;
};

// The machine's file system. Its files begin to flow to the disk while they are still being
// written, so that sync() waits less. Stateless.
class PosixStorage final : public Storage {
 public:
  std::unique_ptr<WriteFile> create(const fs::path& path) override;
  std::unique_ptr<ReadFile> open(const fs::path& path) override;
  void make_directory(const fs::path& path) override;
  void rename(const fs::path& from, const fs::path& to) override;
  void remove(const fs::path& path) override;
  std::optional<std::vector<StorageEntry>> list(const fs::path& directory) override;
  void sync_directory(const fs::path& path) override;
  int64_t free_bytes(const fs::path& directory) override;
};

// The whole file. StorageError if it is larger than `limit_bytes` (EFBIG).
std::string read_text(Storage& storage, const fs::path& path, int64_t limit_bytes);

// Removes a directory of files. Missing files and a missing directory are no error: another
// process may be removing the same one.
void remove_directory(Storage& storage, const fs::path& directory);

}  // namespace trireme
