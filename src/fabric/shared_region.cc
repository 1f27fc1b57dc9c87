#include "fabric/shared_region.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

#include "base/error.h"
#include "fabric/communicator.h"

namespace trireme {
namespace {

constexpr size_t kPage = 4096;
constexpr uint64_t kMagic = 0x7472697265'6d6501;  // and the layout's version
constexpr size_t kMaxGroups = 4096, kKeyBytes = 192, kTextBytes = 4096, kActivityBytes = 96;

enum class Presence : uint32_t { not_yet, here, left };

void copy_text(char* to, size_t capacity, const std::string& text) {
  const size_t length = std::min(text.size(), capacity - 1);
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

[[noreturn]] void refuse(const char* what) {
  throw RunError(concat("shared memory between ranks: ", what, ": ", std::strerror(errno)));
}

// A mutex of all processes that survives the death of its holder.
class RobustLock {
 public:
  explicit RobustLock(pthread_mutex_t& mutex) : mutex_(mutex) {
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
  }
  ~RobustLock() { pthread_mutex_unlock(&mutex_); }
  RobustLock(const RobustLock&) = delete;
  RobustLock& operator=(const RobustLock&) = delete;

 private:
  pthread_mutex_t& mutex_;
};

}  // namespace

void sleep_on(SharedWord& word, uint32_t seen, int milliseconds) {
  const timespec time{milliseconds / 1000, milliseconds % 1000 * 1'000'000L};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &time, nullptr, 0);
}

void wake_all(SharedWord& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

struct SharedRegion::Control {
  uint64_t magic;
  int32_t ranks;
  int32_t supervised;
  struct Rank {
    std::atomic<uint32_t> presence;
    std::atomic<int32_t> pid;
    std::atomic<uint32_t> activities;  // the last is in activity[activities % 2]
    char activity[2][kActivityBytes];
  } by_rank[kMaxRanks];

  std::atomic<uint32_t> failed, told;  // failed: 0 no, 1 being written, 2 yes
  int32_t failed_rank, exit_code;
  char text[kTextBytes];

  pthread_mutex_t mutex;  // guards what follows
  uint64_t end;           // of the file
  struct Group {
    char key[kKeyBytes];
    int32_t first_member;
    uint64_t offset, bytes;
  };
  uint32_t groups;
  Group group[kMaxGroups];
  // The order of groups, and who was first.
  uint32_t builds;
  struct Build {
    char key[kKeyBytes];
    int32_t rank;
  } build[kMaxGroups];
};

int SharedRegion::make(int ranks, bool supervised) {
  TRIREME_CHECK(ranks >= 1 && ranks <= kMaxRanks, "one machine holds 1 to ", kMaxRanks,
                " ranks, got ", ranks);
  const int fd = ::memfd_create("trireme-ranks", 0);
  if (fd < 0) refuse("memfd_create");
  const size_t bytes = (sizeof(Control) + kPage - 1) / kPage * kPage;
  void* memory = MAP_FAILED;
  if (::ftruncate(fd, static_cast<off_t>(bytes)) == 0)
    memory = ::mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    ::close(fd);
    errno = error;
    refuse("mmap");
  }
  auto* control = static_cast<Control*>(memory);  // zeros
  control->ranks = ranks;
  control->supervised = supervised;
  control->end = bytes;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&control->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  control->magic = kMagic;
  ::munmap(memory, sizeof(Control));
  return fd;
}

SharedRegion::SharedRegion(int fd, int rank) : fd_(fd), rank_(rank) {
  struct stat state{};
  if (::fstat(fd, &state) != 0 || static_cast<size_t>(state.st_size) < sizeof(Control))
    throw RunError(concat("shared memory between ranks: descriptor ", fd, " is none of ours"));
  void* memory = ::mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) refuse("mmap");
  control_ = static_cast<Control*>(memory);
  if (control_->magic != kMagic || rank >= control_->ranks) {
    ::munmap(memory, sizeof(Control));
    throw RunError(concat("shared memory between ranks: descriptor ", fd, " has no rank ", rank));
  }
  if (rank < 0) return;
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_start = rank;
  lock.l_len = 1;
  if (::fcntl(fd_, F_SETLK, &lock) != 0) refuse("another process has this rank");
  Control::Rank& mine = control_->by_rank[rank];
  mine.pid = ::getpid();
  mine.presence = static_cast<uint32_t>(Presence::here);
}

SharedRegion::~SharedRegion() { ::munmap(control_, sizeof(Control)); }

int SharedRegion::ranks() const { return control_->ranks; }
bool SharedRegion::supervised() const { return control_->supervised != 0; }

void SharedRegion::leave() {
  control_->by_rank[rank_].presence = static_cast<uint32_t>(Presence::left);
}

bool SharedRegion::fail(const Failure& failure) {
  uint32_t none = 0;
  if (!control_->failed.compare_exchange_strong(none, 1)) return false;
  control_->failed_rank = failure.rank;
  control_->exit_code = failure.exit_code;
  copy_text(control_->text, kTextBytes, failure.text);
  control_->failed = 2;
  return true;
}

std::optional<SharedRegion::Failure> SharedRegion::failure() const {
  if (control_->failed != 2) return std::nullopt;
  return Failure{control_->failed_rank, control_->exit_code, control_->text};
}

bool SharedRegion::first_to_tell() { return control_->told.exchange(1) == 0; }

void SharedRegion::set_activity(const std::string& text) {
  Control::Rank& mine = control_->by_rank[rank_];
  const uint32_t next = mine.activities + 1;
  copy_text(mine.activity[next % 2], kActivityBytes, text);
  mine.activities = next;
}

std::string SharedRegion::activity(int rank) const {
  const Control::Rank& other = control_->by_rank[rank];
  const uint32_t last = other.activities;
  if (last == 0) return "its start";
  const char* text = other.activity[last % 2];
  return {text, ::strnlen(text, kActivityBytes)};
}

bool SharedRegion::has_left(int rank) const {
  return control_->by_rank[rank].presence == static_cast<uint32_t>(Presence::left);
}

bool SharedRegion::is_gone(int rank) const {
  const Control::Rank& other = control_->by_rank[rank];
  const auto here = [&] { return other.presence == static_cast<uint32_t>(Presence::here); };
  // The threads of one process share its locks.
  if (!here() || other.pid == ::getpid()) return false;
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_start = rank;
  lock.l_len = 1;
  if (::fcntl(fd_, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) return false;
  return here();  // it may have left in between
}

SharedRegion::Area::Area(Area&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

SharedRegion::Area::~Area() {
  if (data_) ::munmap(data_, bytes_);
}

SharedRegion::Area SharedRegion::map_group(const std::string& name, const std::string& key,
                                           const std::vector<int>& members, uint64_t build,
                                           size_t bytes) {
  TRIREME_ASSERT(key.size() < kKeyBytes, key);
  bytes = (bytes + kPage - 1) / kPage * kPage;
  uint64_t offset = 0;
  {
    const RobustLock lock(control_->mutex);
    TRIREME_ASSERT(build < kMaxGroups && control_->groups < kMaxGroups, "too many groups");
    Control::Build& first = control_->build[build];
    if (build == control_->builds) {
      copy_text(first.key, kKeyBytes, key);
      first.rank = rank_;
      ++control_->builds;
    } else if (key != first.key) {
      throw FabricError(
          name, "group", build, {},
          concat("group #", build, ": rank ", first.rank, " makes ", first.key, ", rank ", rank_,
                 " makes ", key, ": every rank makes the same groups in the same order"));
    }
    for (uint32_t g = 0; g < control_->groups && offset == 0; ++g) {
      const Control::Group& group = control_->group[g];
      if (group.first_member != members[0] || key != group.key) continue;
      TRIREME_ASSERT(group.bytes == bytes, key);
      offset = group.offset;
    }
    if (offset == 0) {
      if (::ftruncate(fd_, static_cast<off_t>(control_->end + bytes)) != 0) refuse("ftruncate");
      offset = control_->end;
      control_->end += bytes;
      Control::Group& group = control_->group[control_->groups];
      copy_text(group.key, kKeyBytes, key);
      group.first_member = members[0];
      group.offset = offset;
      group.bytes = bytes;
      ++control_->groups;
    }
  }
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, static_cast<off_t>(offset));
  if (memory == MAP_FAILED) refuse("mmap");
  return Area(static_cast<std::byte*>(memory), bytes);
}

}  // namespace trireme
