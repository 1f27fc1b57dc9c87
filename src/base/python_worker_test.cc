#include "base/python_worker.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

namespace trireme {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

// Does what it is asked for: the worst that a script can do, too.
constexpr std::string_view kScript = R"(
import os, signal, sys, time

def answer(request):
    if "echo" in request: return {"echo": request["echo"]}, b""
    if "bytes" in request: return {}, bytes(i * 7 % 256 for i in range(request["bytes"]))
    if "refuse" in request: raise Refusal(request["refuse"])
    if "print" in request: print(request["print"]); return {}, b""
    if "memory" in request: raise MemoryError
    if "raise" in request: raise ValueError(request["raise"])
    if "exit" in request: print("last words", file=sys.stderr, flush=True); os._exit(request["exit"])
    if "signal" in request: os.kill(os.getpid(), request["signal"])
    if "pid" in request: return {"pid": os.getpid(), "group": os.getpgid(0), "flags": sys.flags.isolated}, b""
    if "hang" in request:
        while True: pass

serve(answer)
)";

TEST(PythonWorker, AnswersInOrderFromAnyThread) {
  PythonWorker worker({.script = kScript});
  // Text that JSON must escape, and a line longer than any buffer.
  for (const std::string& text :
       {std::string("a\n\"\\\0b", 6), std::string("\u65e5\U0001f600"), std::string(3'000'000, 'x')})
    EXPECT_EQ(worker.ask({{"echo", text}}).value()["echo"], text);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i)
        EXPECT_EQ(worker.ask({{"echo", t * 100 + i}}).value()["echo"], t * 100 + i);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(worker.ask({{"print", "to stdout"}}).value()["bytes"], 0) << "prints are no answers";
}

TEST(PythonWorker, SendsBytes) {
  PythonWorker worker({.script = kScript});
  for (size_t n : {size_t{0}, size_t{1}, size_t{70'000}, size_t{5'000'000}}) {
    std::vector<std::byte> payload(n);
    ASSERT_TRUE(worker.ask({{"bytes", n}}, payload).ok());
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(payload[i], static_cast<std::byte>(i * 7 % 256));
  }
  std::vector<std::byte> payload(3);
  EXPECT_EQ(worker.ask({{"bytes", 5}}, payload).reason(), "it sent 5 bytes in place of 3");
}

// After each of these the next question finds a worker that works.
TEST(PythonWorker, SaysWhyThereIsNoAnswer) {
  PythonWorker worker({.script = kScript, .timeout = 60s});
  const std::vector<std::pair<json, std::string>> cases = {
      {{{"refuse", "no such thing"}}, "no such thing"},
      {{{"raise", "odd"}}, "ValueError: odd"},
      {{{"memory", 1}}, "it takes more memory than it may"},
      {{{"exit", 4}}, "it ended with exit code 4: last words"},
      {{{"signal", 9}}, "it was ended by signal 9"},
  };
  for (const auto& [request, reason] : cases) {
    EXPECT_EQ(worker.ask(request).reason(), reason);
    EXPECT_EQ(worker.ask({{"echo", 1}}).value()["echo"], 1);
  }
  PythonWorker wrong({.script = "import nothing_of_this_name"});
  EXPECT_EQ(wrong.ask({}).reason(),
            "it ended with exit code 1: ModuleNotFoundError: No module named "
            "'nothing_of_this_name'");
}

TEST(PythonWorker, EndsWhatHangs) {
  PythonWorker worker({.script = kScript, .timeout = 60s});
  const auto pid = worker.ask({{"pid", 1}}).value()["pid"].get<pid_t>();
  PythonWorker hasty({.script = kScript, .timeout = 300ms});
  EXPECT_EQ(hasty.ask({{"hang", 1}}).reason(), "it took too long");
  EXPECT_EQ(::kill(pid, 0), 0) << "another worker's process";
}

TEST(PythonWorker, LeavesNoProcessAndIsAlone) {
  json about;
  {
    PythonWorker worker({.script = kScript});
    about = worker.ask({{"pid", 1}}).value();
    EXPECT_EQ(about["group"], about["pid"]) << "a Ctrl-C reaches us only";
    EXPECT_EQ(about["flags"], 1) << "nothing of the user's Python settings";
  }
  EXPECT_EQ(::kill(about["pid"].get<pid_t>(), 0), -1);
}

TEST(PythonWorker, SaysThatThereIsNoPython) {
  ::setenv("TRIREME_VENV", "/nowhere", 1);
  PythonWorker worker({.script = kScript});
  EXPECT_THROW(
      try { (void)worker.ask({}); } catch (const RunError& error) {
        EXPECT_NE(std::string(error.what()).find("/nowhere/bin/python"), std::string::npos);
        throw;
      },
      RunError);
  ::unsetenv("TRIREME_VENV");
}

}  // namespace
}  // namespace trireme
