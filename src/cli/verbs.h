// The verbs of the command line: each is one file that declares its options and returns what to do
// once they are parsed. A new verb is a file, a declaration here, and a line of the table in
// verbs.cc.
#pragma once

#include <functional>
#include <span>

namespace CLI {
class App;
}

namespace trireme {

// Returns the process's exit code; throws trireme::Error, which is printed and turned into its exit
// code. Results go to stdout, everything said about them to stderr.
using Run = std::function<int()>;

struct Verb {
  const char* name;
  const char* summary;
  // Adds options, positionals and subcommands to the verb's App, which outlives the Run. What they
  // are parsed into lives in a shared_ptr that the Run holds.
  Run (*declare)(CLI::App& app);
};

std::span<const Verb> verbs();

Run declare_ckpt(CLI::App& app);
Run declare_completion(CLI::App& app);
Run declare_data(CLI::App& app);
Run declare_eval(CLI::App& app);
Run declare_explain(CLI::App& app);
Run declare_generate(CLI::App& app);
Run declare_help(CLI::App& app);
Run declare_tokenizer(CLI::App& app);
Run declare_train(CLI::App& app);
Run declare_verify(CLI::App& app);
Run declare_version(CLI::App& app);

// Parses the command line and runs one verb. Never throws, unless TRIREME_DEBUG=1 is set: then an
// exception ends the process where it is thrown, with a stack trace.
int run_command_line(int argc, char** argv);

}  // namespace trireme
