#include "data/source.h"

#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"

namespace trireme {
namespace {

constexpr std::string_view kPythonStdlib = "python-stdlib";

constexpr std::string_view kTextEndings[] = {
    ".adoc",  ".asm",  ".bash", ".bat", ".c",    ".cc",    ".cfg",  ".clj",  ".cmake", ".cpp",
    ".cs",    ".css",  ".csv",  ".cu",  ".cuh",  ".cxx",   ".dart", ".el",   ".erl",   ".ex",
    ".exs",   ".f90",  ".go",   ".h",   ".hh",   ".hpp",   ".hs",   ".htm",  ".html",  ".hxx",
    ".ini",   ".java", ".jl",   ".js",  ".json", ".jsonl", ".jsx",  ".kt",   ".lisp",  ".lua",
    ".m",     ".md",   ".mjs",  ".ml",  ".mli",  ".nim",   ".org",  ".php",  ".pl",    ".pm",
    ".proto", ".ps1",  ".py",   ".pyi", ".pyx",  ".r",     ".rb",   ".rs",   ".rst",   ".s",
    ".scala", ".scm",  ".scss", ".sh",  ".sql",  ".swift", ".tex",  ".text", ".toml",  ".ts",
    ".tsv",   ".tsx",  ".txt",  ".vim", ".vue",  ".xml",   ".yaml", ".yml",  ".zig",   ".zsh"};

// Folders of the standard library that hold tests or foreign packages, wherever they are.
constexpr std::string_view kPythonLeftOut[] = {"test",          "tests",         "idle_test",
                                               "site-packages", "dist-packages", "__pycache__"};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

std::string_view without_compression(std::string_view name) {
  if (compression_of(name) == Compression::none) return name;
  return name.substr(0, name.rfind('.'));
}

std::string ending_of(std::string_view name) {
  const size_t dot = name.find_last_of("./");
  if (dot == std::string_view::npos || name[dot] == '/') return {};
  return lower(name.substr(dot));
}

InputError cannot_read(std::string_view what, const fs::path& path, int error) {
  return InputError(
      concat("data.source: cannot read ", what, path.string(), ": ", std::strerror(error)));
}

// Takes files in, each once.
class Lister {
 public:
  using Wanted = bool (*)(std::string_view name);
  using Entered = bool (*)(std::string_view folder);

  void start(SourceListing& listing) { listing_ = &listing; }

  void add_file(const fs::path& path, std::string name, bool named) {
    std::error_code error;
    if (!named && !fs::is_regular_file(path, error)) {
      ++listing_->other_kinds;
      return;
    }
    SourceFile file = stat_file(path, std::move(name), "data.source");
    file.named = named;
    if (seen_.emplace(file.device, file.inode).second) listing_->files.push_back(std::move(file));
    else ++listing_->twice;
  }

  // The folder's files in the order of their names' bytes.
  void walk(const fs::path& folder, const std::string& name, Wanted wanted, Entered entered) {
    std::vector<std::pair<std::string, fs::path>> found;
    collect(folder, name + "/", wanted, entered, found);
    std::sort(found.begin(), found.end());
    for (auto& [file_name, path] : found) add_file(path, file_name, false);
  }

 private:
  void collect(const fs::path& folder, const std::string& prefix, Wanted wanted, Entered entered,
               std::vector<std::pair<std::string, fs::path>>& found) {
    std::error_code error;
    fs::directory_iterator entries(folder, error);
    if (error) throw cannot_read("the folder ", folder, error.value());
    for (; entries != fs::directory_iterator(); entries.increment(error)) {
      if (error) throw cannot_read("the folder ", folder, error.value());
      const std::string name = entries->path().filename().string();
      if (name.starts_with('.')) continue;
      // status() fails for links that point nowhere: they count as neither.
      if (entries->is_directory(error)) {
        if (!entries->is_symlink(error) && entered(name))
          collect(entries->path(), prefix + name + "/", wanted, entered, found);
      } else if (entries->is_regular_file(error) && wanted(name)) {
        found.emplace_back(prefix + name, entries->path());
      } else {
        ++listing_->other_kinds;
      }
    }
  }

  SourceListing* listing_ = nullptr;
  std::set<std::pair<uint64_t, uint64_t>> seen_;
};

bool any_folder(std::string_view) { return true; }

bool is_glob(const std::string& path) {
  return path.find_first_of("*?[") != std::string::npos && !fs::exists(path);
}

// What matches pattern components `at`… below `folder`, appended in no order.
void match_glob(const fs::path& folder, std::span<const std::string> components,
                std::vector<fs::path>& matches) {
  if (components.empty()) {
    matches.push_back(folder);
    return;
  }
  const std::string& component = components.front();
  const auto rest = components.subspan(1);
  if (component.find_first_of("*?[") == std::string::npos) {
    std::error_code error;
    if (fs::exists(folder / component, error)) match_glob(folder / component, rest, matches);
    return;
  }
  if (component == "**") match_glob(folder, rest, matches);
  std::error_code error;
  fs::directory_iterator entries(folder.empty() ? fs::path(".") : folder, error);
  if (error == std::errc::not_a_directory) return;
  if (error) throw cannot_read("the folder ", folder, error.value());
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    const fs::path name = entries->path().filename();
    if (component == "**") {
      if (!name.string().starts_with('.') && entries->is_directory(error) &&
          !entries->is_symlink(error))
        match_glob(folder / name, components, matches);
    } else if (::fnmatch(component.c_str(), name.c_str(), FNM_PERIOD) == 0) {
      match_glob(folder / name, rest, matches);
    }
  }
}

void list_glob(const std::string& pattern, SourceListing& listing, Lister& lister) {
  const fs::path path(pattern);
  std::vector<std::string> components;
  for (const fs::path& part : path.relative_path())
    if (!part.empty()) components.push_back(part.string());
  std::vector<fs::path> matches;
  match_glob(path.root_path(), components, matches);
  std::sort(matches.begin(), matches.end(),
            [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
  matches.erase(std::unique(matches.begin(), matches.end()), matches.end());
  TRIREME_CHECK(!matches.empty(), "data.source: nothing matches \"", pattern, "\" in ",
                fs::current_path().string());
  for (const fs::path& match : matches) {
    std::error_code error;
    if (!fs::is_directory(match, error)) lister.add_file(match, match.string(), false);
    else if (components.back() != "**")
      lister.walk(match, match.string(), is_text_name, any_folder);
  }
  listing.origin = fs::current_path().string();
}

// First line of what a program prints, or nullopt when it does not run.
std::optional<std::string> first_line_of(const char* command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command, "re"), ::pclose);
  if (!pipe) return std::nullopt;
  std::string text;
  char buffer[4096];
  while (std::fgets(buffer, sizeof buffer, pipe.get())) text += buffer;
  const size_t end = text.find('\n');
  if (end == 0 || end == std::string::npos) return std::nullopt;
  return text.substr(0, end);
}

// The interpreter's own answer; -I keeps the user's environment out, -S the site packages.
fs::path python_stdlib_folder() {
  for (const char* command :
       {"/usr/bin/python3 -I -S -c 'import os; print(os.path.dirname(os.__file__))' 2>/dev/null",
        "python3 -I -S -c 'import os; print(os.path.dirname(os.__file__))' 2>/dev/null"})
    if (const auto folder = first_line_of(command); folder && fs::is_directory(*folder))
      return *folder;
  throw InputError(
      "data.source: python-stdlib needs a Python, and neither /usr/bin/python3 nor python3 runs\n"
      "next: install python3, or name other sources");
}

void list_python_library(const fs::path& folder, SourceListing& listing, Lister& lister) {
  listing.origin = folder.string();
  listing.licence = "PSF-2.0";
  lister.walk(
      folder, std::string(kPythonStdlib),
      [](std::string_view name) { return name.ends_with(".py"); },
      [](std::string_view name) { return !std::ranges::count(kPythonLeftOut, name); });
}

void list_entry(const std::string& entry, SourceListing& listing, Lister& lister) {
  TRIREME_CHECK(!entry.empty(),
                "data.source: an entry is empty; expected a file, a folder, a glob or "
                "a named source");
  if (entry == kPythonStdlib) return list_python_library(python_stdlib_folder(), listing, lister);
  if (is_glob(entry)) return list_glob(entry, listing, lister);
  std::error_code error;
  const fs::file_status status = fs::status(entry, error);
  TRIREME_CHECK(fs::exists(status), "data.source: \"", entry, "\" does not exist in ",
                fs::current_path().string(),
                "\nnext: name a file, a folder, a glob, or python-stdlib");
  listing.origin = fs::canonical(entry, error).string();
  if (!fs::is_directory(status)) return lister.add_file(entry, entry, true);
  std::string name = entry;
  while (name.size() > 1 && name.ends_with('/')) name.pop_back();
  lister.walk(entry, name == "/" ? "" : name, is_text_name, any_folder);
}

}  // namespace

Compression compression_of(std::string_view name) {
  const std::string ending = ending_of(name);
  if (ending == ".gz") return Compression::gzip;
  if (ending == ".zst" || ending == ".zstd") return Compression::zstd;
  return Compression::none;
}

bool is_text_name(std::string_view name) {
  return std::ranges::count(kTextEndings, ending_of(without_compression(name))) > 0;
}

bool is_jsonl_name(std::string_view name) {
  return ending_of(without_compression(name)) == ".jsonl";
}

SourceListing list_python_library(const fs::path& folder) {
  SourceListing listing;
  Lister lister;
  lister.start(listing);
  list_python_library(folder, listing, lister);
  return listing;
}

SourceFile stat_file(const fs::path& path, std::string name, std::string_view key) {
  struct stat status;
  TRIREME_CHECK(::stat(path.c_str(), &status) == 0, key, ": cannot read ", path.string(), ": ",
                std::strerror(errno));
  TRIREME_CHECK(S_ISREG(status.st_mode), key, ": ", path.string(), " is no regular file");
  const auto nanoseconds = [](const timespec& t) {
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  };
  return {path,
          std::move(name),
          true,
          static_cast<uint64_t>(status.st_size),
          status.st_dev,
          status.st_ino,
          nanoseconds(status.st_mtim),
          nanoseconds(status.st_ctim)};
}

std::vector<SourceListing> list_sources(std::span<const SourceOptions> entries) {
  TRIREME_CHECK(!entries.empty(), "data.source: expected at least one entry, got none");
  std::vector<SourceListing> listings(entries.size());
  Lister lister;
  for (size_t i = 0; i < entries.size(); ++i) {
    SourceListing& listing = listings[i];
    lister.start(listing);
    list_entry(entries[i].path, listing, lister);
    TRIREME_CHECK(!listing.files.empty(), "data.source: \"", entries[i].path,
                  "\" has no text or code in it (", listing.other_kinds, " files of other kinds, ",
                  listing.twice, " that an earlier entry has)");
  }
  return listings;
}

}  // namespace trireme
