#include "train/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace trireme {
namespace {

[[noreturn]] void fail(const char* operation, const std::filesystem::path& path, int reason,
                       const char* note = "") {
  throw RunError(
      concat("cannot ", operation, " ", path.string(), ": ", std::strerror(reason), note));
}

}  // namespace

AppendFile::AppendFile(std::filesystem::path path) : path_(std::move(path)) {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("open", path_, errno);
  struct stat status;
  if (::fstat(fd_, &status) != 0) {
    const int reason = errno;
    ::close(fd_);
    fail("stat", path_, reason);
  }
  size_bytes_ = static_cast<uint64_t>(status.st_size);
}

AppendFile::~AppendFile() { ::close(fd_); }

void AppendFile::append(std::string_view piece) {
  for (size_t done = 0; done < piece.size();) {
    const ssize_t n = ::write(fd_, piece.data() + done, piece.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int reason = errno;
      const bool whole = ::ftruncate(fd_, static_cast<off_t>(size_bytes_)) == 0;
      fail("write", path_, reason, whole ? "" : "; its end is torn");
    }
    done += static_cast<size_t>(n);
  }
  size_bytes_ += piece.size();
}

void AppendFile::sync() {
  if (::fdatasync(fd_) != 0) fail("sync", path_, errno);
}

}  // namespace trireme
