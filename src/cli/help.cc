#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/nearest.h"
#include "base/recipe/explain.h"
#include "cli/verbs.h"

namespace trireme {
namespace {

constexpr std::string_view kIntroduction = R"(# The command line

<!-- Written by `trireme help --markdown`; a test keeps it current. -->

`./trireme VERB …` at the root of a checkout installs and builds what is missing, then runs the verb.

- Results go to stdout, everything said about them to stderr. `--json` gives one JSON document where a
  person would read a table.
- On a terminal, long work shows one progress line; elsewhere a plain line now and then.
- Exit codes: 0 done; 1 failed while running; 2 the input is wrong (usage, recipe, data); 3 a check
  that was asked for did not hold; 130 and 143 stopped by SIGINT and SIGTERM, after a last checkpoint.
- An error has one to three lines: what was being done, what was found and expected, what to do next.
  With `TRIREME_DEBUG=1` a stack trace of where it was thrown follows.
- Verbs that take `RECIPE [key=value …]` let the command line go before the recipe:
  [recipe.md](recipe.md) tells how, and lists the keys.
- `source <(trireme completion bash)` (or `zsh`; `trireme completion fish | source`) lets the shell
  complete verbs, options and keys.

| verb | what it does |
| --- | --- |
)";

// As `trireme data build --help` prints it. App::help() would turn to the verb that was parsed,
// which is `help` itself.
std::string help_of(const CLI::App& app, const std::string& name) {
  return app.get_formatter()->make_help(&app, name, CLI::AppFormatMode::Normal);
}

// The help of the verb that the words name, "data build"; empty when they name none.
std::string verb_help(const CLI::App& root, const std::vector<std::string>& words) {
  const CLI::App* app = &root;
  std::string name = root.get_name();
  for (const std::string& word : words) {
    const auto found =
        app->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == word; });
    if (found.empty()) return "";
    app = found[0];
    name += " " + word;
  }
  return help_of(*app, name);
}

// Of a key, a section, or of all keys for "recipe"; empty when there is none of that name.
std::string recipe_help(const Schema& schema, const std::string& topic) {
  if (topic == "recipe") return describe_section(schema, "");
  const KeySpec* key = schema.find(topic);
  return (key ? describe_key(*key) : "") + describe_section(schema, topic);
}

// docs/cli.md: how every verb behaves, then the help of each.
std::string command_line_markdown(const CLI::App& root) {
  std::string text(kIntroduction), parts;
  const auto add = [&](const auto& self, const CLI::App& app, const std::string& name) -> void {
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
      const std::string path = name + (name.empty() ? "" : " ") + sub->get_name();
      parts += concat("\n## ", path, "\n\n```\n", help_of(*sub, "trireme " + path), "```\n");
      if (name.empty())
        text += concat("| [`", path, "`](#", path, ") | ", sub->get_description(), " |\n");
      self(self, *sub, path);
    }
  };
  add(add, root, "");
  return text + parts;
}

[[noreturn]] void unknown_topic(const CLI::App& root, const std::string& topic) {
  std::vector<std::string> topics{"recipe"};
  for (const CLI::App* verb : root.get_subcommands([](const CLI::App*) { return true; }))
    topics.push_back(verb->get_name());
  for (const KeySpec& key : recipe_schema().keys) {
    topics.emplace_back(key.name);
    topics.emplace_back(key.name.substr(0, key.name.find('.')));
  }
  const auto meant = nearest(topic, topics);
  throw InputError(concat("there is no help on '", topic, "'",
                          meant ? concat("; did you mean '", *meant, "'?") : "",
                          "\nnext: trireme help for the verbs, trireme help recipe for the keys"));
}

}  // namespace

Run declare_help(CLI::App& app) {
  struct Options {
    std::vector<std::string> topic;
    bool markdown = false;
  };
  const auto options = std::make_shared<Options>();
  app.add_option("TOPIC", options->topic,
                 "a verb (train), a section (batch) or key (batch.size), or: recipe");
  app.add_flag("--markdown", options->markdown,
               "the page docs/cli.md; with 'recipe': docs/recipe.md");
  return [options, root = app.get_parent()] {
    std::string topic;
    for (const std::string& word : options->topic) topic += (topic.empty() ? "" : " ") + word;
    if (options->markdown) {
      TRIREME_CHECK(
          topic.empty() || topic == "recipe",
          "help: --markdown prints the page on the command line, without a topic, or that "
          "on 'recipe'");
      const std::string page =
          topic.empty() ? command_line_markdown(*root) : recipe_markdown(recipe_schema());
      std::fputs(page.c_str(), stdout);
      return 0;
    }
    const std::string verb = verb_help(*root, options->topic);
    const std::string keys = topic.empty() ? "" : recipe_help(recipe_schema(), topic);
    if (verb.empty() && keys.empty()) unknown_topic(*root, topic);
    const bool both = !verb.empty() && !keys.empty();
    std::printf("%s%s%s", verb.c_str(), both ? "\nKeys of recipes:\n" : "", keys.c_str());
    return 0;
  };
}

}  // namespace trireme
