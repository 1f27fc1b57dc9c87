// The verbs of the command line: each is one file that declares its options and returns what to do
// once they are parsed.
#pragma once

#include <functional>
#include <span>

namespace CLI {
class App;
}

namespace trireme {

// Returns the process's exit code; throws trireme::Error, which main prints and turns into its exit
// code.
using Run = std::function<int()>;

struct Verb {
  const char* name;
  const char* summary;
  Run (*declare)(CLI::App& app);
};

std::span<const Verb> verbs();

Run declare_version(CLI::App& app);

// Parses the command line and runs one verb.
int run_command_line(int argc, char** argv);

}  // namespace trireme
