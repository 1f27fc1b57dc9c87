// Completion scripts, made by walking the tree of verbs and options that CLI11 holds, so that they
// know whatever the binary knows. After a verb that takes a recipe, its keys are completed too.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "base/error.h"
#include "base/recipe/schema.h"
#include "cli/verbs.h"

namespace trireme {
namespace {

struct Word {
  std::string text, help;
};

// What may follow one verb.
struct Node {
  std::string path;  // "data build"; empty for the program itself
  std::vector<Word> verbs, options;
  bool takes_keys = false;  // RECIPE key=value …
};

Node node_of(const CLI::App& app, const std::string& path) {
  Node node{path, {}, {}};
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    node.verbs.push_back({sub->get_name(), sub->get_description()});
  for (const CLI::Option* option : app.get_options()) {
    node.takes_keys |= option->get_positional() && option->get_name() == "key=value";
    for (const std::string& name : option->get_lnames())
      node.options.push_back({"--" + name, option->get_description()});
  }
  return node;
}

void collect(const CLI::App& app, const std::string& path, std::vector<Node>& nodes) {
  nodes.push_back(node_of(app, path));
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    collect(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), nodes);
}

std::vector<Node> tree_of(const CLI::App& app) {
  const CLI::App* root = &app;
  while (root->get_parent()) root = root->get_parent();
  std::vector<Node> nodes;
  collect(*root, "", nodes);
  return nodes;
}

std::string joined(const std::vector<Word>& words) {
  std::string text;
  for (const Word& word : words) text += (text.empty() ? "" : " ") + word.text;
  return text;
}

std::string recipe_keys() {
  std::string text;
  for (const KeySpec& key : recipe_schema().keys)
    if (key.name.find('*') == key.name.npos && !recipe_schema().records_of(key))
      text += concat(text.empty() ? "" : " ", key.name, "=");
  return text;
}

// The two case tables that bash and zsh share: from the words typed so far to the verb, and from
// the verb to what may follow.
std::string case_tables(const std::vector<Node>& nodes, std::string_view typed) {
  std::string known, follow;
  for (const Node& node : nodes) {
    if (!node.path.empty()) {
      const size_t space = node.path.rfind(' ');
      const bool top = space == node.path.npos;
      known += concat(known.empty() ? "" : " | ", '"', top ? "" : node.path.substr(0, space), ":",
                      top ? node.path : node.path.substr(space + 1), '"');
    }
    follow += concat("    \"", node.path, "\") verbs=\"", joined(node.verbs), "\" options=\"",
                     joined(node.options), '"', node.takes_keys ? " keys=$all_keys" : "", " ;;\n");
  }
  return concat("  for word in ", typed, "; do\n    case \"$verb:$word\" in\n      ", known,
                ") verb=\"${verb:+$verb }$word\" ;;\n    esac\n  done\n  case \"$verb\" in\n",
                follow, "  esac\n");
}

std::string bash_script(const std::vector<Node>& nodes) {
  return concat(R"(# Completion of trireme for bash. Load it with: source <(trireme completion bash)
_trireme() {
  local verb="" word verbs="" options="" keys="" current="${COMP_WORDS[COMP_CWORD]}"
  local all_keys=")",
                recipe_keys(), "\"\n", case_tables(nodes, "\"${COMP_WORDS[@]:1:COMP_CWORD-1}\""),
                R"(  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$current"))
  elif [[ -n $verbs ]]; then
    COMPREPLY=($(compgen -W "$verbs" -- "$current"))
  else
    COMPREPLY=()
    [[ -n $current ]] && COMPREPLY=($(compgen -W "$keys" -- "$current"))
    if ((${#COMPREPLY[@]} > 0)); then
      compopt -o nospace
    else
      compopt -o filenames
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
    fi
  fi
}
complete -F _trireme trireme ./trireme
)");
}

std::string zsh_script(const std::vector<Node>& nodes) {
  return concat(R"(# Completion of trireme for zsh. Load it with: source <(trireme completion zsh)
_trireme() {
  local verb="" word verbs="" options="" keys="" current="${words[CURRENT]}"
  local all_keys=")",
                recipe_keys(), "\"\n", case_tables(nodes, "\"${(@)words[2,CURRENT-1]}\""),
                R"(  if [[ $current == -* ]]; then
    compadd -- ${=options}
  elif [[ -n $verbs ]]; then
    compadd -- ${=verbs}
  else
    [[ -n $current ]] && compadd -S "" -- ${=keys}
    _files
  fi
}
compdef _trireme trireme ./trireme
)");
}

std::string quoted_for_fish(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' || c == '\\' ? concat('\\', c) : std::string(1, c);
  return quoted + "'";
}

std::string fish_script(const std::vector<Node>& nodes) {
  std::string text =
      "# Completion of trireme for fish. Load it with: trireme completion fish | source\n";
  for (const Node& node : nodes) {
    std::string when = "__fish_use_subcommand";
    if (!node.path.empty()) {
      when.clear();
      std::string path = node.path;
      for (size_t space; !path.empty(); path.erase(0, space == path.npos ? space : space + 1)) {
        space = path.find(' ');
        when += concat(when.empty() ? "" : "; and ", "__fish_seen_subcommand_from ",
                       path.substr(0, space));
      }
    }
    const std::string head = concat("complete -c trireme -n ", quoted_for_fish(when));
    for (const Word& verb : node.verbs)
      text += concat(head, " -f -a ", verb.text, " -d ", quoted_for_fish(verb.help), "\n");
    for (const Word& option : node.options)
      text +=
          concat(head, " -l ", option.text.substr(2), " -d ", quoted_for_fish(option.help), "\n");
    if (node.takes_keys) text += concat(head, " -a '", recipe_keys(), "'\n");
  }
  return text;
}

}  // namespace

Run declare_completion(CLI::App& app) {
  const auto shell = std::make_shared<std::string>();
  for (const char* name : {"bash", "zsh", "fish"})
    app.add_subcommand(name, concat("for ", name))->group("Shells")->callback([shell, name] {
      *shell = name;
    });
  app.require_subcommand(1);
  return [shell, &app] {
    const std::vector<Node> nodes = tree_of(app);
    const std::string script = *shell == "bash"  ? bash_script(nodes)
                               : *shell == "zsh" ? zsh_script(nodes)
                                                 : fish_script(nodes);
    std::fputs(script.c_str(), stdout);
    return 0;
  };
}

}  // namespace trireme
