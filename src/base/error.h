// How Trireme says that something went wrong.
//
// Two families, chosen by who must act:
//   the caller, the recipe or the data is wrong -> TRIREME_CHECK and InputError: exit code 2, no
//   stack trace; we are wrong                                -> TRIREME_ASSERT and InternalError: a
//   bug, with file and line.
// Between them, what the world does: a full disk, a lost peer -> RunError: exit code 1. And a check
// that the user asked for did not hold -> CheckError: exit code 3. Expected absence is
// std::optional; a file operation whose failure the caller decides about right there returns
// Result<T>.
//
// A message has one to three lines: what was being done; what was found and what was expected; what
// to do next. Catch only at a thread's root and in main. Any thread.
#pragma once

#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace trireme {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  virtual int exit_code() const { return 1; }
};

// Usage, recipe or data are wrong.
class InputError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return 2; }
};

// The run failed: I/O, a peer, a loss that is not finite.
class RunError : public Error {
 public:
  using Error::Error;
};

// A check that the user asked for (verify, ckpt verify, diff) did not hold.
class CheckError : public Error {
 public:
  using Error::Error;
  int exit_code() const override { return 3; }
};

// A bug of ours.
class InternalError : public Error {
 public:
  using Error::Error;
};

// All arguments, streamed into one string.
template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

[[noreturn]] void throw_internal_error(const char* file, int line, const char* condition,
                                       const std::string& message);

// The caller's or the user's fault, for example TRIREME_CHECK(x > 0, "scale: x must be positive,
// got ", x).
#define TRIREME_CHECK(condition, ...)                              \
  do {                                                             \
    if (!(condition)) [[unlikely]]                                 \
      throw ::trireme::InputError(::trireme::concat(__VA_ARGS__)); \
  } while (false)

// Ours, for example TRIREME_ASSERT(slot < slots_.size(), "slot ", slot).
#define TRIREME_ASSERT(condition, ...)                                                   \
  do {                                                                                   \
    if (!(condition)) [[unlikely]]                                                       \
      ::trireme::throw_internal_error(__FILE__, __LINE__, #condition,                    \
                                      ::trireme::concat("" __VA_OPT__(, ) __VA_ARGS__)); \
  } while (false)

// A value, or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  static Result failure(std::string reason) { return Result(Failure{std::move(reason)}); }

  bool ok() const { return value_.has_value(); }
  const std::string& reason() const { return reason_; }
  T& value() & { return or_throw(), *value_; }
  T&& value() && { return or_throw(), std::move(*value_); }

 private:
  struct Failure {
    std::string reason;
  };
  explicit Result(Failure f) : reason_(std::move(f.reason)) {}
  void or_throw() const {
    if (!ok()) throw RunError(reason_);
  }

  std::optional<T> value_;
  std::string reason_;
};

}  // namespace trireme
