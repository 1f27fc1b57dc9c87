#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/nearest.h"
#include "base/recipe/explain.h"
#include "cli/verbs.h"

namespace trireme {
namespace {

// The help of the verb that the words name, "data build"; empty when they name none.
std::string verb_help(const CLI::App& root, const std::vector<std::string>& words) {
  const CLI::App* app = &root;
  for (const std::string& word : words) {
    const auto found =
        app->get_subcommands([&](const CLI::App* sub) { return sub->get_name() == word; });
    if (found.empty()) return "";
    app = found[0];
  }
  return app->help();
}

// Of a key, a section, or of all keys for "recipe"; empty when there is none of that name.
std::string recipe_help(const Schema& schema, const std::string& topic) {
  if (topic == "recipe") return describe_section(schema, "");
  const KeySpec* key = schema.find(topic);
  return (key ? describe_key(*key) : "") + describe_section(schema, topic);
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
  app.add_flag("--markdown", options->markdown, "with 'recipe': the page docs/recipe.md");
  return [options, root = app.get_parent()] {
    std::string topic;
    for (const std::string& word : options->topic) topic += (topic.empty() ? "" : " ") + word;
    TRIREME_CHECK(!options->markdown || topic == "recipe",
                  "--markdown goes with: trireme help recipe");
    const std::string verb = verb_help(*root, options->topic);
    const std::string keys = options->markdown ? recipe_markdown(recipe_schema())
                             : topic.empty()   ? ""
                                               : recipe_help(recipe_schema(), topic);
    if (verb.empty() && keys.empty()) unknown_topic(*root, topic);
    const bool both = !verb.empty() && !keys.empty();
    std::printf("%s%s%s", verb.c_str(), both ? "\nKeys of recipes:\n" : "", keys.c_str());
    return 0;
  };
}

}  // namespace trireme
