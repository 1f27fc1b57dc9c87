#include "train/run_directory.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/recipe/explain.h"
#include "train/machine.h"

namespace trireme {
namespace {

bool holds_run(const fs::path& path) {
  return fs::exists(path / "recipe.toml") || fs::exists(path / "checkpoints") ||
         fs::exists(path / "metrics.jsonl");
}

// Nothing but what a run leaves that was refused before its first step.
bool is_free(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return true;
  return std::ranges::all_of(fs::directory_iterator(path), [](const fs::directory_entry& entry) {
    return entry.path().filename() == "lock" || entry.path().filename() == "log";
  });
}

fs::path numbered(const std::string& name, int number) {
  return fs::path("runs") / (number == 1 ? name : concat(name, "-", number));
}

// Keys whose change would make the run go on as something else than it was.
bool is_fixed(const std::string& key) {
  static constexpr std::string_view kFixed[] = {"task",   "run.seed",   "model.",        "data.",
                                                "table.", "precision.", "optimizer.kind"};
  static constexpr std::string_view kFree[] = {"data.cache"};
  const auto begins = [&](std::string_view prefix) { return key.starts_with(prefix); };
  return std::ranges::any_of(kFixed, begins) && std::ranges::none_of(kFree, begins);
}

std::map<std::string, std::string> values_of(const Recipe& recipe) {
  std::map<std::string, std::string> values;
  for (const Recipe::Entry& entry : recipe.entries())
    if (entry.value) values[entry.name] = to_toml(*entry.value);
  return values;
}

std::optional<FileLock> lock_in(const fs::path& directory) {
  try {
    return FileLock::try_lock(directory / "lock");
  } catch (const RunError& unwritable) {
    throw InputError(concat("cannot write to the run directory: ", unwritable.what()));
  }
}

}  // namespace

RunDirectory RunDirectory::open(Recipe& recipe, bool resume) {
  fs::path path;
  const bool given = recipe.has("run.dir");
  if (given) {
    path = recipe.text("run.dir");
  } else {
    const std::string& name = recipe.text("run.name");
    int number = 1;
    while (holds_run(numbered(name, number))) ++number;
    path = numbered(name, resume && number > 1 ? number - 1 : number);
  }
  if (!resume && given) {
    TRIREME_CHECK(
        !holds_run(path), recipe.where("run.dir"), ": ", path.string(),
        " holds a run already\nnext: --resume goes on with it; another run.dir starts anew");
    TRIREME_CHECK(
        is_free(path), recipe.where("run.dir"), ": ", path.string(),
        " is not empty, and what it holds is no run\nnext: name an empty or a new directory");
  }
  make_directories(path);
  std::optional<FileLock> lock = lock_in(path);
  TRIREME_CHECK(lock, "another process is writing to ", path.string(),
                "\nnext: wait for it or stop it; `cat ", (path / "lock").string(),
                "` says its process id");
  recipe.set_derived("run.dir", path.string());
  return RunDirectory(std::move(path), std::move(*lock));
}

void RunDirectory::check_against_frozen(const Recipe& recipe) const {
  const fs::path file = path_ / "recipe.toml";
  if (!fs::exists(file)) return;
  const auto before = values_of(load_recipe(file)), now = values_of(recipe);
  std::string refused;
  const auto compare = [&](const std::string& key, const std::string* old_value,
                           const std::string* new_value) {
    if (old_value && new_value && *old_value == *new_value) return;
    if (key == "run.dir" || key == "run.name" || key == "run.threads") return;
    const std::string change = concat(key, ": ", old_value ? *old_value : "(not set)", " -> ",
                                      new_value ? *new_value : "(not set)");
    if (is_fixed(key)) refused += concat("\n  ", change);
    else log_info(concat("changed since the run began: ", change));
  };
  for (const auto& [key, value] : before)
    compare(key, &value, now.contains(key) ? &now.at(key) : nullptr);
  for (const auto& [key, value] : now)
    if (!before.contains(key)) compare(key, nullptr, &value);
  TRIREME_CHECK(refused.empty(), "cannot go on with ", path_.string(),
                ": these keys make it another run", refused,
                "\nnext: put them back, or start a new run");
}

void RunDirectory::freeze(const Recipe& recipe) const {
  std::vector<std::string> comments;
  for (const Fact& fact : machine_facts()) comments.push_back(concat(fact.name, ": ", fact.value));
  write_file(path_ / "recipe.toml", frozen_recipe(recipe, comments));
}

fs::path find_run(const std::string& run) {
  for (const fs::path& path : {fs::path(run), fs::path("runs") / run})
    if (fs::is_directory(path) && holds_run(path)) return path;
  throw InputError(concat("no run at ", run, ": expected a run directory, or a name below runs/"));
}

}  // namespace trireme
