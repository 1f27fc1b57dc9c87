// The bytes of a file, decompressed on the way when its name ends in .gz, .zst or .zstd. Several
// gzip members or zstd frames behind one another are one stream, as gzip and zstd have it.
//
// Memory is bounded whatever the file says: one block of input, and the decompressor's window of at
// most 128 MB. One thread. InputError, with the name: the file cannot be opened or read, is no gzip
// or zstd file, is corrupt, or ends in the middle.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/files.h"

namespace trireme {

class InputStream {
 public:
  explicit InputStream(const fs::path& path);
  ~InputStream();
  InputStream(InputStream&&) noexcept;
  InputStream& operator=(InputStream&&) noexcept;

  // Up to `bytes` bytes; 0 at the end and only there.
  size_t read(char* to, size_t bytes);

  uint64_t raw_bytes() const;  // taken from the file so far
  // XXH3-128 of the file as it lies on disk, in hex; what `xxhsum -H128` prints. REQUIRES: read()
  // has returned 0.
  std::string raw_hash() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// raw_bytes() and raw_hash() of a whole file without decompressing it.
struct FileHash {
  std::string xxh128;
  uint64_t bytes;
};
FileHash hash_file(const fs::path& path);

}  // namespace trireme
