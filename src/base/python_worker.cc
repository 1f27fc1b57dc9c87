#include "base/python_worker.h"

#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "base/worker.py.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

std::string python_path() {
  const char* given = std::getenv("TRIREME_VENV");
  const std::filesystem::path venv = given && *given ? given : TRIREME_VENV;
  const std::filesystem::path python = venv / "bin" / "python";
  if (::access(python.c_str(), X_OK) != 0)
    throw RunError(concat("cannot start a Python worker: ", python.string(), ": ",
                          std::strerror(errno),
                          "\nnext: `./trireme version` sets the environment up; TRIREME_VENV "
                          "names another one"));
  return python.string();
}

// Throws away what does not own a descriptor twice.
class Descriptor {
 public:
  explicit Descriptor(int fd, const char* what) : fd_(fd) {
    if (fd < 0) throw RunError(concat("cannot make ", what, ": ", std::strerror(errno)));
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

int socket_pair(int& other) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  other = ends[1];
  return ends[0];
}

// Why there is no answer, thrown within this file only.
struct NoAnswer {
  std::string reason;
};

}  // namespace

class PythonWorker::Process {
 public:
  explicit Process(const std::string& program)
      : channel_(socket_pair(theirs_), "a socket pair"),
        said_(::memfd_create("worker-stderr", MFD_CLOEXEC), "a memory file") {
    const Descriptor theirs(theirs_, "a socket pair");
    const std::string python = python_path();
    std::string words[] = {python, "-I", "-c", program};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                         nullptr};
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_adddup2(&files, theirs.get(), STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&files, said_.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&files, said_.get(), STDERR_FILENO);
    // A Ctrl-C is for us, who then end the worker; signals that a thread of ours blocks are not
    // blocked there.
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    const int error = ::posix_spawn(&pid_, python.c_str(), &files, &attributes, arguments, environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
    if (error != 0) throw RunError(concat("cannot start ", python, ": ", std::strerror(error)));
  }

  ~Process() {
    ::kill(pid_, SIGKILL);
    int status = 0;
    while (!reaped_ && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }

  nlohmann::json ask(const std::string& line, std::span<std::byte> payload,
                     Clock::time_point until) {
    send(line, until);
    auto parsed = try_parse_json<nlohmann::json>(receive_line(until));
    if (!parsed.ok()) throw NoAnswer{"it answered nonsense: " + parsed.reason()};
    nlohmann::json reply = std::move(parsed).value();
    if (!reply.is_object() || !reply.contains("bytes")) throw NoAnswer{"it answered nonsense"};
    const auto nbytes = reply["bytes"].get<size_t>();
    if (nbytes != (reply.contains("error") ? 0 : payload.size()))
      throw NoAnswer{concat("it sent ", nbytes, " bytes in place of ", payload.size())};
    receive(payload.first(nbytes), until);
    return reply;
  }

 private:
  // True when the channel is ready for `events`.
  void wait(short events, Clock::time_point until) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd poll{channel_.get(), events, 0};
    const int ready = ::poll(&poll, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (ready == 0) throw NoAnswer{"it took too long"};
    if (ready < 0 && errno != EINTR) throw NoAnswer{std::strerror(errno)};
  }

  void send(std::string_view text, Clock::time_point until) {
    while (!text.empty()) {
      const ssize_t n =
          ::send(channel_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) text.remove_prefix(static_cast<size_t>(n));
      else if (errno == EAGAIN) wait(POLLOUT, until);
      else if (errno != EINTR) throw NoAnswer{ending()};
    }
  }

  // At least one byte, into the buffer behind what is there.
  void fill(Clock::time_point until) {
    for (;;) {
      wait(POLLIN, until);
      const size_t before = buffer_.size();
      buffer_.resize(before + kReadBytes);
      const ssize_t n = ::recv(channel_.get(), buffer_.data() + before, kReadBytes, MSG_DONTWAIT);
      buffer_.resize(before + static_cast<size_t>(std::max<ssize_t>(n, 0)));
      if (n > 0) return;
      if (n == 0 || (errno != EINTR && errno != EAGAIN)) throw NoAnswer{ending()};
    }
  }

  std::string receive_line(Clock::time_point until) {
    for (size_t searched = 0;;) {
      const size_t end = buffer_.find('\n', searched);
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      searched = buffer_.size();
      fill(until);
    }
  }

  void receive(std::span<std::byte> out, Clock::time_point until) {
    const size_t there = std::min(out.size(), buffer_.size());
    std::memcpy(out.data(), buffer_.data(), there);
    buffer_.erase(0, there);
    for (size_t done = there; done < out.size();) {
      wait(POLLIN, until);
      const ssize_t n = ::recv(channel_.get(), out.data() + done, out.size() - done, MSG_DONTWAIT);
      if (n > 0) done += static_cast<size_t>(n);
      else if (n == 0 || (errno != EINTR && errno != EAGAIN)) throw NoAnswer{ending()};
    }
  }

  // How the process ended, with the last line that it printed.
  std::string ending() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    reaped_ = true;
    std::string text(4096, '\0');
    const off_t size = ::lseek(said_.get(), 0, SEEK_END);
    const ssize_t n = ::pread(said_.get(), text.data(), text.size(),
                              std::max<off_t>(size - static_cast<off_t>(text.size()), 0));
    text.resize(static_cast<size_t>(std::max<ssize_t>(n, 0)));
    text.erase(text.find_last_not_of(" \n") + 1);
    const size_t line = text.rfind('\n');
    if (line != std::string::npos) text.erase(0, line + 1);
    return concat(WIFSIGNALED(status) ? "it was ended by signal " : "it ended with exit code ",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
                  text.empty() ? "" : ": ", text);
  }

  static constexpr size_t kReadBytes = 1 << 16;
  int theirs_ = -1;
  Descriptor channel_, said_;
  pid_t pid_ = 0;
  bool reaped_ = false;
  std::string buffer_;  // received and not yet asked for
};

struct PythonWorker::State {
  std::mutex mutex;
  std::optional<Process> process;  // guarded by mutex
};

PythonWorker::PythonWorker(Options options)
    : options_(options), state_(std::make_unique<State>()) {}
PythonWorker::~PythonWorker() = default;

Result<nlohmann::json> PythonWorker::ask(const nlohmann::json& request,
                                         std::span<std::byte> payload) {
  const std::string line =
      request.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n";
  const std::lock_guard lock(state_->mutex);
  if (!state_->process) state_->process.emplace(concat(kWorkerPy, "\n", options_.script));
  try {
    nlohmann::json reply = state_->process->ask(line, payload, Clock::now() + options_.timeout);
    if (const auto error = reply.find("error"); error != reply.end())
      return Result<nlohmann::json>::failure(error->get<std::string>());
    return reply;
  } catch (const NoAnswer& none) {
    state_->process.reset();
    return Result<nlohmann::json>::failure(none.reason);
  }
}

}  // namespace trireme
