#include "cli/verbs.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "base/error.h"

namespace trireme {

std::span<const Verb> verbs() {
  static constexpr Verb all[] = {
      {"version", "print the versions of Trireme and of what it stands on", declare_version},
  };
  return all;
}

int run_command_line(int argc, char** argv) {
  CLI::App app("Trireme trains language models and recommendation models.", "trireme");
  app.require_subcommand(1);
  Run run;
  for (const Verb& verb : verbs()) {
    CLI::App* sub = app.add_subcommand(verb.name, verb.summary);
    sub->callback([&run, todo = verb.declare(*sub)] { run = todo; });
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    return run();
  } catch (const Error& error) {
    std::fprintf(stderr, "trireme: %s\n", error.what());
    return error.exit_code();
  }
}

}  // namespace trireme
