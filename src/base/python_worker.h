// A Python process of ours that answers questions, for what C++ has no safe library for: pickles,
// Jinja.
//
// The script is part of the binary and runs in the environment that holds the torch wheel, apart
// from the user's own Python settings. It defines answer(request) -> (reply, payload) and ends with
// serve(answer); worker.py has the other half. It starts at the first question, by posix_spawn in a
// process group of its own, and ends with this object or with this process, however that ends.
//
// Threads: any; one question at a time, the others wait. Cost: a process (0.1 s, with torch 2 s),
// then about 50 microseconds a question.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"

namespace trireme {

class PythonWorker {
 public:
  struct Options {
    std::string_view script;                    // outlives the worker
    std::chrono::milliseconds timeout{60'000};  // of one answer
  };
  explicit PythonWorker(Options options);
  ~PythonWorker();

  // The reply, and `payload` filled with the bytes that came with it, as many as it has room for. A
  // failure says why there is none: the worker refused, died, or took too long; after the latter
  // two the next question starts a new process. RunError if Python cannot be started.
  Result<nlohmann::json> ask(const nlohmann::json& request, std::span<std::byte> payload = {});

 private:
  class Process;
  Options options_;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
