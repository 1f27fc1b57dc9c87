// How the process says that it failed.
#pragma once

#include <exception>
#include <string>

namespace trireme {

// What is said of an error.
std::string message_of(const std::exception& error);

// Prints one to three lines to stderr and returns the exit code: the error's own, and 1 for what
// libtorch, the standard library and the machine throw.
int report_failure(const std::exception& error);

// TRIREME_DEBUG is set to something other than 0.
bool debug_wanted();

// From now on an exception that nobody catches is reported with a stack trace of where it was
// thrown, and ends the process with its exit code. Nothing is unwound: only for debugging.
void trace_uncaught_exceptions();

}  // namespace trireme
