// Which files an entry of `data.source` stands for.
//
// - A file: that file, whatever its name ends in.
// - A folder: the files below it whose names end as those of text or code do (is_text_name), except
//   what begins with a dot; links to folders are not followed.
// - A glob: * ? [...] within a name, ** for any number of folders. What matches is taken whatever
//   its name ends in; a folder that matches is walked as above.
// - python-stdlib: the standard library of the Python of this machine, without its tests.
//
// Names are put in the order of their bytes, so the list does not depend on the file system. A file
// that an earlier entry has brought is left out of a later one. Threads: any. Errors: InputError.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace trireme {

struct SourceOptions {
  std::string path;              // one of the above
  std::string field = "text";    // of the objects in .jsonl files
  std::optional<double> weight;  // in a blend: all entries have one, or none
};

struct SourceFile {
  fs::path path;     // to open
  std::string name;  // for people and for the corpus's name: the entry and the path below it
  bool named;  // by the user, so whatever is wrong with it is an error; otherwise it was found
  // What tells whether it has changed since.
  uint64_t bytes, device, inode;
  int64_t modified_ns, changed_ns;
};

struct SourceListing {
  std::string origin;   // the folder or file, absolute
  std::string licence;  // SPDX name, or empty
  std::vector<SourceFile> files;
  uint64_t other_kinds = 0, twice = 0;  // found and left out
};

// A file that the user has named. InputError, beginning with `key`: it is missing or no regular
// file.
SourceFile stat_file(const fs::path& path, std::string name, std::string_view key);

// One listing for each entry, in their order. InputError: an entry without any file.
std::vector<SourceListing> list_sources(std::span<const SourceOptions> entries);

// What python-stdlib stands for where the library lies in this folder.
SourceListing list_python_library(const fs::path& folder);

// Whether the ending is one of a text or code file, .gz, .zst and .zstd aside.
bool is_text_name(std::string_view name);
// Whether it holds one JSON object a line.
bool is_jsonl_name(std::string_view name);

enum class Compression { none, gzip, zstd };
Compression compression_of(std::string_view name);

}  // namespace trireme
