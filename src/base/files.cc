#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace trireme {
namespace {

std::string failure(const char* operation, const fs::path& path) {
  return concat("cannot ", operation, " ", path.string(), ": ", std::strerror(errno));
}

// One descriptor, closed on every way out.
struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

void write_all(int fd, const void* data, size_t bytes, std::optional<uint64_t> offset,
               const fs::path& path) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n =
        offset ? ::pwrite(fd, at, bytes, static_cast<off_t>(*offset)) : ::write(fd, at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw RunError(failure("write", path));
    at += n;
    bytes -= static_cast<size_t>(n);
    if (offset) *offset += static_cast<uint64_t>(n);
  }
}

}  // namespace

std::string read_file(const fs::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) throw InputError(failure("open", path));
  std::string content;
  struct stat status;
  if (::fstat(file.fd, &status) == 0 && S_ISREG(status.st_mode))
    content.reserve(static_cast<size_t>(status.st_size));
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(file.fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw InputError(failure("read", path));
    if (n == 0) return content;
    content.append(buffer, static_cast<size_t>(n));
  }
}

void write_file(const fs::path& path, std::string_view content) {
  AtomicFile file(path);
  file.write(content);
  file.commit();
}

AtomicFile::AtomicFile(fs::path path) : path_(std::move(path)) {
  static std::atomic<uint64_t> count{0};
  partial_ = path_;
  partial_ += concat(".partial-", ::getpid(), "-", count.fetch_add(1));
  fd_ = ::open(partial_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) throw RunError(failure("create", partial_));
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(partial_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  write_all(fd_, data, bytes, position_, partial_);
  position_ += bytes;
}

void AtomicFile::write_at(uint64_t offset, const void* data, size_t bytes) {
  write_all(fd_, data, bytes, offset, partial_);
}

void AtomicFile::commit() {
  TRIREME_ASSERT(fd_ >= 0, "commit() of ", path_, " twice");
  if (::fsync(fd_) != 0) throw RunError(failure("sync", partial_));
  if (::rename(partial_.c_str(), path_.c_str()) != 0) throw RunError(failure("rename to", path_));
  ::close(std::exchange(fd_, -1));
  sync_directory(path_.has_parent_path() ? path_.parent_path() : ".");
}

MappedFile::MappedFile(const fs::path& path) {
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) throw InputError(failure("open", path));
  struct stat status;
  if (::fstat(file.fd, &status) != 0) throw RunError(failure("stat", path));
  if (!S_ISREG(status.st_mode))
    throw InputError(concat("cannot map ", path.string(), ": it is not a regular file"));
  bytes_ = static_cast<size_t>(status.st_size);
  if (bytes_ == 0) return;
  void* at = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (at == MAP_FAILED) throw RunError(failure("map", path));
  data_ = static_cast<const std::byte*>(at);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

std::optional<FileLock> FileLock::try_lock(const fs::path& path) {
  Descriptor file{::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)};
  if (file.fd < 0) throw RunError(failure("open", path));
  if (::flock(file.fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return std::nullopt;
    throw RunError(failure("lock", path));
  }
  const std::string pid = concat(::getpid(), "\n");
  if (::ftruncate(file.fd, 0) != 0) throw RunError(failure("truncate", path));
  write_all(file.fd, pid.data(), pid.size(), 0, path);
  return FileLock(std::exchange(file.fd, -1));
}

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

void make_directories(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    throw InputError(concat("cannot make the directory ", path.string(), ": ", error.message()));
}

void sync_directory(const fs::path& path) {
  const Descriptor directory{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (directory.fd < 0) throw RunError(failure("open", path));
  if (::fsync(directory.fd) != 0) throw RunError(failure("sync", path));
}

}  // namespace trireme
