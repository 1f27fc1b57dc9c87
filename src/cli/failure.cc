#include "cli/failure.h"

#include <c10/util/Exception.h>
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trireme {
namespace {

std::string type_of(const std::exception& error) {
  int status = 0;
  char* name = abi::__cxa_demangle(typeid(error).name(), nullptr, nullptr, &status);
  const std::string type = status == 0 ? name : typeid(error).name();
  std::free(name);
  return type;
}

// The addresses of our own code among the frames, without this handler's, as addr2line takes them:
// relative to where the program lies, and within the call rather than behind it.
std::vector<std::string> own_addresses(void* const* frames, int count) {
  Dl_info self;
  if (!::dladdr(reinterpret_cast<void*>(&report_failure), &self)) return {};
  std::vector<std::string> addresses;
  bool thrown = false;  // behind the C++ library's frames, which called the handler
  for (int i = 0; i < count; ++i) {
    Dl_info info;
    const bool own = ::dladdr(frames[i], &info) && info.dli_fbase == self.dli_fbase;
    thrown |= !own;
    if (!own || !thrown) continue;
    char text[32];
    std::snprintf(text, sizeof text, "%#zx",
                  static_cast<size_t>(static_cast<char*>(frames[i]) -
                                      static_cast<char*>(self.dli_fbase) - 1));
    addresses.emplace_back(text);
  }
  return addresses;
}

// One line a frame, innermost first. The debug information is large: addr2line reads it once.
void print_trace() {
  void* frames[128];
  const std::vector<std::string> addresses = own_addresses(frames, ::backtrace(frames, 128));
  std::error_code ignored;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  std::vector<std::string> words{"addr2line", "-C", "-f", "-p", "-i", "-e", program};
  words.insert(words.end(), addresses.begin(), addresses.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawn_file_actions_t to_stderr;
  ::posix_spawn_file_actions_init(&to_stderr);
  ::posix_spawn_file_actions_adddup2(&to_stderr, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  int status = 1;
  if (::posix_spawnp(&child, words[0].c_str(), &to_stderr, nullptr, arguments.data(), environ) == 0)
    ::waitpid(child, &status, 0);
  ::posix_spawn_file_actions_destroy(&to_stderr);
  if (status == 0) return;
  for (const std::string& address : addresses) std::fprintf(stderr, "%s\n", address.c_str());
}

[[noreturn]] void end_with_trace() {
  int code = 1;
  try {
    if (const auto current = std::current_exception()) std::rethrow_exception(current);
    std::fputs("trireme: ended without an exception\n", stderr);
  } catch (const std::exception& error) {
    code = report_failure(error);
    std::fprintf(stderr, "%s, thrown from\n", type_of(error).c_str());
  } catch (...) {
    std::fputs("trireme: an exception of unknown type\n", stderr);
  }
  print_trace();
  std::fflush(stdout);
  std::_Exit(code);
}

}  // namespace

std::string message_of(const std::exception& error) {
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error))
    return debug_wanted() ? torch->what() : torch->what_without_backtrace();
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "out of memory";
  return error.what();
}

int report_failure(const std::exception& error) {
  std::fflush(stdout);
  std::fprintf(stderr, "trireme: %s\n", message_of(error).c_str());
  const auto* ours = dynamic_cast<const Error*>(&error);
  return ours ? ours->exit_code() : 1;
}

bool debug_wanted() {
  const char* value = std::getenv("TRIREME_DEBUG");
  return value && *value && std::string_view(value) != "0";
}

void trace_uncaught_exceptions() { std::set_terminate(end_with_trace); }

}  // namespace trireme
