#include "state/storage.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace trireme {
namespace {

std::string describe(std::string_view operation, const fs::path& path, int code) {
  std::string text = concat("cannot ", operation, " ", path.string(), ": ", std::strerror(code));
  if (code == ENOSPC || code == EDQUOT)
    text += "\nnext: free space there, or keep fewer checkpoints (`ckpt prune`)";
  return text;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

class PosixWriteFile final : public WriteFile {
 public:
  PosixWriteFile(int fd, fs::path path) : file_(fd), path_(std::move(path)) {}

  void write(std::span<const std::byte> data) override {
    written_ += static_cast<int64_t>(data.size());
    while (!data.empty()) {
      const ssize_t n = ::write(file_.get(), data.data(), data.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw StorageError("write", path_, errno);
      data = data.subspan(static_cast<size_t>(n));
    }
    // Only starts the transfer of what is full; its errors come back from sync().
    constexpr int64_t kFlush = 8 << 20;
    if (written_ - flushed_ < kFlush) return;
    ::sync_file_range(file_.get(), flushed_, written_ - flushed_, SYNC_FILE_RANGE_WRITE);
    flushed_ = written_;
  }

  void sync() override {
    if (::fsync(file_.get()) != 0) throw StorageError("sync", path_, errno);
  }

  void close() override {
    if (::close(file_.release()) != 0) throw StorageError("close", path_, errno);
  }

 private:
  Descriptor file_;
  fs::path path_;
  int64_t written_ = 0, flushed_ = 0;
};

class PosixReadFile final : public ReadFile {
 public:
  PosixReadFile(int fd, fs::path path, int64_t bytes)
      : file_(fd), path_(std::move(path)), bytes_(bytes) {}

  int64_t bytes() const override { return bytes_; }

  int64_t read(int64_t offset, std::span<std::byte> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n = ::pread(file_.get(), out.data() + done, out.size() - done,
                                offset + static_cast<int64_t>(done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw StorageError("read", path_, errno);
      if (n == 0) break;
      done += static_cast<size_t>(n);
    }
    return static_cast<int64_t>(done);
  }

 private:
  Descriptor file_;
  fs::path path_;
  int64_t bytes_;
};

}  // namespace

StorageError::StorageError(std::string_view operation, const fs::path& path, int code)
    : RunError(describe(operation, path, code)), code_(code) {}

std::unique_ptr<WriteFile> PosixStorage::create(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) throw StorageError("create", path, errno);
  return std::make_unique<PosixWriteFile>(fd, path);
}

std::unique_ptr<ReadFile> PosixStorage::open(const fs::path& path) {
  // Without O_NONBLOCK a pipe in the place of a file would hold us for ever.
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw StorageError("open", path, errno);
  struct stat status;
  if (::fstat(file.get(), &status) != 0) throw StorageError("stat", path, errno);
  if (S_ISDIR(status.st_mode)) throw StorageError("read", path, EISDIR);
  if (!S_ISREG(status.st_mode)) throw StorageError("read", path, EINVAL);
  return std::make_unique<PosixReadFile>(file.release(), path, status.st_size);
}

void PosixStorage::make_directory(const fs::path& path) {
  if (::mkdir(path.c_str(), 0755) != 0) throw StorageError("make the directory", path, errno);
}

void PosixStorage::rename(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw StorageError("rename to", to, errno);
}

void PosixStorage::remove(const fs::path& path) {
  if (::remove(path.c_str()) != 0) throw StorageError("remove", path, errno);
}

std::optional<std::vector<StorageEntry>> PosixStorage::list(const fs::path& directory) {
  struct Closer {
    void operator()(DIR* d) const { ::closedir(d); }
  };
  const std::unique_ptr<DIR, Closer> open(::opendir(directory.c_str()));
  if (!open && (errno == ENOENT || errno == ENOTDIR)) return std::nullopt;
  if (!open) throw StorageError("list", directory, errno);
  std::vector<StorageEntry> entries;
  for (;;) {
    errno = 0;
    const dirent* at = ::readdir(open.get());
    if (!at && errno != 0) throw StorageError("list", directory, errno);
    if (!at) break;
    const std::string name = at->d_name;
    if (name == "." || name == "..") continue;
    struct stat status;
    if (::fstatat(::dirfd(open.get()), at->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0) {
      if (errno == ENOENT) continue;  // removed meanwhile
      throw StorageError("stat", directory / name, errno);
    }
    using enum StorageEntry::Type;
    const auto type = S_ISREG(status.st_mode)   ? file
                      : S_ISDIR(status.st_mode) ? StorageEntry::Type::directory
                                                : other;
    entries.push_back({name, type, type == file ? static_cast<int64_t>(status.st_size) : 0});
  }
  std::ranges::sort(entries, {}, &StorageEntry::name);
  return entries;
}

void PosixStorage::sync_directory(const fs::path& path) {
  const Descriptor directory(
      ::open(path.empty() ? "." : path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.get() < 0) throw StorageError("open", path, errno);
  if (::fsync(directory.get()) != 0) throw StorageError("sync", path, errno);
}

int64_t PosixStorage::free_bytes(const fs::path& directory) {
  struct statvfs status;
  if (::statvfs(directory.c_str(), &status) != 0)
    throw StorageError("ask for free space in", directory, errno);
  return static_cast<int64_t>(status.f_bavail) * static_cast<int64_t>(status.f_frsize);
}

std::string read_text(Storage& storage, const fs::path& path, int64_t limit_bytes) {
  const auto file = storage.open(path);
  if (file->bytes() > limit_bytes) throw StorageError("read", path, EFBIG);
  std::string text(static_cast<size_t>(file->bytes()), '\0');
  const int64_t n = file->read(0, std::as_writable_bytes(std::span(text)));
  text.resize(static_cast<size_t>(n));
  return text;
}

void remove_directory(Storage& storage, const fs::path& directory) {
  const auto gone = [&](const fs::path& path) {
    try {
      storage.remove(path);
    } catch (const StorageError& error) {
      if (error.code() != ENOENT) throw;
    }
  };
  const auto entries = storage.list(directory);
  if (!entries) return;
  for (const StorageEntry& entry : *entries) gone(directory / entry.name);
  gone(directory);
}

}  // namespace trireme
