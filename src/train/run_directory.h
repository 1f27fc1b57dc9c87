// The directory of a run: which one, whose, and what it froze.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/recipe/recipe.h"

namespace trireme {

class RunDirectory {
 public:
  // Chooses, makes and locks the directory, and sets run.dir in the recipe.
  //   run.dir given   that one; it must be empty or missing, or `resume` set
  //   else            the next free of runs/NAME, runs/NAME-2, …; with `resume` the newest that is
  //   there, or runs/NAME
  // InputError: it holds a run and `resume` is not set, another process is writing, or it cannot be
  // made.
  static RunDirectory open(Recipe& recipe, bool resume);

  const fs::path& path() const { return path_; }
  fs::path checkpoints() const { return path_ / "checkpoints"; }

  // What differs from the frozen recipe of the run that is resumed. Keys that may change are said
  // on the log; for others InputError names them. Nothing if there is no frozen recipe yet.
  void check_against_frozen(const Recipe& recipe) const;

  // recipe.toml, with versions and machine as comments.
  void freeze(const Recipe& recipe) const;

 private:
  RunDirectory(fs::path path, FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  fs::path path_;
  FileLock lock_;
};

// A run's directory by what the user says: the directory itself, or a name below runs/. InputError
// if it holds no run.
fs::path find_run(const std::string& run);

}  // namespace trireme
