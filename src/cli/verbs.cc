#include "cli/verbs.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/nearest.h"
#include "cli/failure.h"

namespace trireme {

std::span<const Verb> verbs() {
  static constexpr Verb all[] = {
      {"train", "run a recipe", declare_train},
      {"generate", "continue a text with a trained model", declare_generate},
      {"eval", "measure a trained model on texts", declare_eval},
      {"verify", "check that every layout gives the same numbers", declare_verify},
      {"data", "prepare a corpus of text, and look into it", declare_data},
      {"ckpt", "list, show, check, convert and compare checkpoints", declare_ckpt},
      {"explain", "show every value of a recipe and where it came from", declare_explain},
      {"tokenizer", "train a tokenizer, encode and decode", declare_tokenizer},
      {"version", "print the versions of Trireme and of what it stands on", declare_version},
      {"help", "explain a verb, a section of recipes or one key", declare_help},
      {"completion", "print a script that lets a shell complete commands", declare_completion},
  };
  return all;
}

namespace {

// CLI11's help, without the words that say what the usage line says already.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    label("SUBCOMMAND", "VERB");
    label("Positionals", "Arguments");
    column_width(28);
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional() || option->get_type_size() == 0) return "";
    const std::string initial = option->get_default_str();
    return " " + option->get_type_name() + (initial.empty() ? "" : "=" + initial);
  }
};

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(sub->get_name());
  return names;
}

// "trireme data build".
std::string full_name(const CLI::App& app) {
  return app.get_parent() ? concat(full_name(*app.get_parent()), " ", app.get_name())
                          : app.get_name();
}

// "data build: ", and nothing for the program itself, which every message begins with anyhow.
std::string subject(const CLI::App& app) {
  return app.get_parent() ? concat(full_name(app).substr(sizeof "trireme"), ": ") : "";
}

// Finds the words that name no verb before CLI11 does, which would only miss one.
void check_verbs(const CLI::App& root, std::span<char* const> arguments) {
  const CLI::App* app = &root;
  for (const std::string argument : arguments) {
    const std::vector<std::string> names = subcommand_names(*app);
    if (names.empty()) return;
    if (argument.starts_with('-')) {
      if (argument == "-h" || argument == "--help" || argument == "--version") return;
      continue;
    }
    if (std::ranges::find(names, argument) == names.end()) {
      const auto meant = nearest(argument, names);
      throw InputError(concat(subject(*app), "there is no verb '", argument, "'",
                              meant ? concat("; did you mean '", *meant, "'?") : "",
                              "\nnext: ", full_name(*app), " --help"));
    }
    app = app->get_subcommand(argument);
  }
  std::string all;
  for (const std::string& name : subcommand_names(*app)) all += (all.empty() ? "" : ", ") + name;
  TRIREME_CHECK(all.empty(), subject(*app), "a verb is missing; there is ", all,
                "\nnext: ", full_name(*app), " --help");
}

// What CLI11 found wrong, and for an unknown option the nearest one.
InputError usage_error(const CLI::App& root, const CLI::ParseError& error) {
  const CLI::App* app = &root;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  std::string meant;
  for (const std::string& word : app->remaining()) {
    if (!word.starts_with("--")) continue;
    std::vector<std::string> options;
    for (const CLI::Option* option : app->get_options())
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    if (const auto option = nearest(word.substr(0, word.find('=')), options))
      meant = concat("; did you mean ", *option, "?");
    break;
  }
  return InputError(
      concat(subject(*app), error.what(), meant, "\nnext: ", full_name(*app), " --help"));
}

// A result that could not be written is no result.
int flushed(int code) {
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
  throw RunError(concat("cannot write to stdout: ", std::strerror(errno)));
}

int parse_and_run(int argc, char** argv) {
  CLI::App app("Trireme trains language models and recommendation models.", "trireme");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "print this help");
  app.set_version_flag("--version", "trireme " TRIREME_VERSION, "print the version");
  app.require_subcommand(1);
  Run run;
  for (const Verb& verb : verbs()) {
    CLI::App* sub = app.add_subcommand(verb.name, verb.summary);
    sub->group("Verbs");
    sub->callback([&run, todo = verb.declare(*sub)] { run = todo; });
  }
  app.footer("trireme VERB --help tells more about a verb, trireme help recipe about recipes.");
  check_verbs(app, std::span(argv, static_cast<size_t>(argc)).subspan(1));
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {  // --help, --version
    return flushed(app.exit(done));
  } catch (const CLI::ParseError& error) {
    throw usage_error(app, error);
  }
  return flushed(run());
}

}  // namespace

int run_command_line(int argc, char** argv) {
  if (debug_wanted()) {
    trace_uncaught_exceptions();
    return parse_and_run(argc, argv);
  }
  try {
    return parse_and_run(argc, argv);
  } catch (const std::exception& error) {
    return report_failure(error);
  }
}

}  // namespace trireme
