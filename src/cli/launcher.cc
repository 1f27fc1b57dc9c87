#include "cli/launcher.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cli/failure.h"
#include "fabric/communicator.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kVariable = "TRIREME_RANK";  // "rank descriptor parent", of a started rank
constexpr auto kGrace = std::chrono::seconds(5);   // for the others, after a failure
constexpr auto kTurn = std::chrono::milliseconds(20);

volatile std::sig_atomic_t signals = 0, last_signal = 0;

void on_signal(int signal) {
  last_signal = signal;
  signals = signals + 1;
}

struct Rank {
  pid_t pid = 0;
  int said = -1;  // a memory file of its stderr; -1: it has ours
  bool ended = false;
  bool stopped = false;
  Clock::time_point stopped_at{};
  int code = 0;
};

std::vector<std::string> own_arguments() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

// The process group of its own keeps a terminal's Ctrl-C for us, who pass it on once.
Rank start(int number, int region_fd) {
  Rank rank;
  std::vector<std::string> words = own_arguments(), variables;
  for (char** entry = environ; *entry; ++entry)
    if (!std::string_view(*entry).starts_with(concat(kVariable, "=")))
      variables.emplace_back(*entry);
  variables.push_back(concat(kVariable, "=", number, " ", region_fd, " ", ::getpid()));
  const auto pointers = [](std::vector<std::string>& texts) {
    std::vector<char*> out;
    for (std::string& text : texts) out.push_back(text.data());
    out.push_back(nullptr);
    return out;
  };
  std::vector<char*> arguments = pointers(words), environment = pointers(variables);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  if (number > 0) {
    rank.said = ::memfd_create("trireme-rank-stderr", MFD_CLOEXEC);
    if (rank.said >= 0) ::fcntl(rank.said, F_SETFL, O_APPEND);
    if (rank.said >= 0) ::posix_spawn_file_actions_adddup2(&files, rank.said, STDERR_FILENO);
    ::posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  }
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = ::posix_spawn(&rank.pid, "/proc/self/exe", &files, &attributes,
                                  arguments.data(), environment.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  if (error != 0) throw RunError(concat("cannot start rank ", number, ": ", std::strerror(error)));
  return rank;
}

// The last lines of what it wrote, for a rank that ended without a word to its peers.
std::string last_words(const Rank& rank) {
  if (rank.said < 0) return "";
  char text[1024];
  const off_t size = ::lseek(rank.said, 0, SEEK_END);
  const off_t from = std::max<off_t>(0, size - static_cast<off_t>(sizeof text));
  const ssize_t n = ::pread(rank.said, text, sizeof text, from);
  std::string words(text, static_cast<size_t>(std::max<ssize_t>(n, 0)));
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words.empty() ? "" : "\nit wrote: " + words;
}

class Supervisor {
 public:
  Supervisor(int ranks, int region_fd, std::chrono::milliseconds timeout)
      : region_(region_fd, -1), timeout_(timeout) {
    try {
      for (int r = 0; r < ranks; ++r) ranks_.push_back(start(r, region_fd));
    } catch (...) {
      end_all();
      throw;
    }
  }
  ~Supervisor() {
    end_all();
    for (const Rank& rank : ranks_)
      if (rank.said >= 0) ::close(rank.said);
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  int wait() {
    std::optional<Clock::time_point> kill_at;
    int passed_on = 0;
    while (!look()) {
      if (signals > passed_on) {
        if (signals > 1) {
          end_all();
          return 128 + last_signal;
        }
        passed_on = signals;
        send(last_signal);
      }
      if (!kill_at && region_.failure()) kill_at = Clock::now() + kGrace;
      if (kill_at && (Clock::now() >= *kill_at || only_stopped_ones_are_left())) end_all();
      std::this_thread::sleep_for(kTurn);
    }
    const auto failure = region_.failure();
    if (!failure) return signal_ended_one_ ? 128 + last_signal : ranks_[0].code;
    std::fprintf(stderr, "trireme: rank %d: %s\n", failure->rank, failure->text.c_str());
    return failure->exit_code;
  }

 private:
  void send(int signal) const {
    for (const Rank& rank : ranks_)
      if (!rank.ended) ::kill(rank.pid, signal);
  }

  // Nothing is to be waited for: they will not end by themselves.
  bool only_stopped_ones_are_left() const {
    return std::ranges::all_of(ranks_, [](const Rank& r) { return r.ended || r.stopped; });
  }

  void end_all() {
    send(SIGKILL);
    for (Rank& rank : ranks_) {
      int status = 0;
      while (!rank.ended && ::waitpid(rank.pid, &status, 0) < 0 && errno == EINTR) {
      }
      rank.ended = true;
    }
  }

  void fail(int rank, const std::string& how) {
    region_.fail({.rank = rank,
                  .text = concat(how, "; it was at ", region_.activity(rank),
                                 last_words(ranks_[static_cast<size_t>(rank)]))});
  }

  // Takes note of what has happened to the ranks; true once all have ended.
  bool look() {
    bool all = true;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Rank& rank = ranks_[r];
      int status = 0;
      while (!rank.ended &&
             ::waitpid(rank.pid, &status, WNOHANG | WUNTRACED | WCONTINUED) == rank.pid)
        note(static_cast<int>(r), rank, status);
      if (rank.stopped && !rank.ended && Clock::now() - rank.stopped_at >= timeout_)
        fail(static_cast<int>(r), concat("has stood stopped for ",
                                         std::chrono::duration<double>(timeout_).count(), " s"));
      all = all && rank.ended;
    }
    return all;
  }

  void note(int number, Rank& rank, int status) {
    if (WIFSTOPPED(status)) {
      rank.stopped = true;
      rank.stopped_at = Clock::now();
    } else if (WIFCONTINUED(status)) {
      rank.stopped = false;
    } else {
      rank.ended = true;
      rank.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      // A signal that we passed on before the rank had its handler.
      if (WIFSIGNALED(status) && signals > 0 && WTERMSIG(status) == last_signal) {
        if (!std::exchange(signal_ended_one_, true)) send(SIGKILL);
        return;
      }
      if (signal_ended_one_) return;
      if (WIFSIGNALED(status))
        fail(number, concat("was ended by signal ", WTERMSIG(status), " (",
                            ::strsignal(WTERMSIG(status)), ")"));
      else if (!region_.has_left(number)) fail(number, concat("exited with code ", rank.code));
    }
  }

  SharedRegion region_;
  const std::chrono::milliseconds timeout_;
  std::vector<Rank> ranks_;
  bool signal_ended_one_ = false;
};

}  // namespace

bool is_launched_rank() { return std::getenv(kVariable) != nullptr; }

int launch_ranks(int ranks, std::chrono::milliseconds timeout) {
  struct Descriptor {
    int fd;
    ~Descriptor() { ::close(fd); }
  } const memory{SharedRegion::make(ranks, true)};
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  return Supervisor(ranks, memory.fd, timeout).wait();
}

int run_launched_rank(const std::function<int(SharedRegion&)>& rank_main) {
  int number = 0, fd = 0, parent = 0;
  TRIREME_CHECK(
      std::sscanf(std::getenv(kVariable), "%d %d %d", &number, &fd, &parent) == 3 && number >= 0,
      kVariable, " is set by `trireme train --ranks` for the processes it starts; unset it");
  ::unsetenv(kVariable);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  SharedRegion region(fd, number);
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  try {
    const int code = rank_main(region);
    region.leave();
    return code;
  } catch (const std::exception& error) {
    std::string text = message_of(error);
    if (const auto* fabric = dynamic_cast<const FabricError*>(&error))
      for (int missing : fabric->missing())
        text += concat("\nrank ", missing, " was at ", region.activity(missing));
    const auto* ours = dynamic_cast<const Error*>(&error);
    const int code = ours ? ours->exit_code() : 1;
    region.fail({.rank = number, .exit_code = code, .text = text});
    region.leave();
    return code;
  }
}

void refuse_foreign_launcher() {
  struct Launcher {
    const char *name, *rank, *size, *also;
  };
  static constexpr Launcher kLaunchers[] = {
      {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
      {"torchrun", "RANK", "WORLD_SIZE", "MASTER_ADDR"},
      {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_TASKS"}};
  for (const Launcher& launcher : kLaunchers) {
    const char *rank = std::getenv(launcher.rank), *size = std::getenv(launcher.size);
    if (!rank || !size || !std::getenv(launcher.also) || std::atoi(size) <= 1) continue;
    throw InputError(concat(launcher.name, " started this process as rank ", rank, " of ", size,
                            ", and ranks of another launcher cannot form a run yet"
                            "\nnext: start one process, with --ranks ",
                            size, " --fabric process on one machine; or unset ", launcher.size));
  }
}

}  // namespace trireme
