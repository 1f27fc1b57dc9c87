// The documents of a list of files, read by several threads at once.
//
// Files are read one behind the other and handed out in *chunks*: a whole text file, or some whole
// lines of a .jsonl file. Decompression and reading are serial, what is done with a chunk is
// parallel. Chunks are numbered in the order of the files, so that whoever keeps results by number
// gets the same for any number of threads.
//
// Memory: one chunk a thread: 1 MB of .jsonl lines, or one document where that is longer.
// Errors:  the one in the earliest chunk is thrown, whatever thread meets which first.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/source.h"

namespace trireme {

struct InputFile {
  const SourceFile* file;
  std::string_view field;  // of .jsonl lines
};

enum class Fault { none, binary, encoding, empty };

struct Document {
  std::string_view text;
  uint64_t line;  // 1, 2, … of a .jsonl file; 0: the whole file
  Fault fault;    // none, or why there is no text: a fault of a file that was named throws instead
};

struct Chunk {
  uint64_t number;  // 0, 1, … over all files
  uint64_t file;    // index into the list of files
  uint64_t offset;  // of the first byte in the decompressed file
  uint64_t line;    // of the first byte, from 1
  std::string bytes;
};

// The documents of a chunk, in order. The text is valid during the call only. InputError with file
// and line: a line that is no JSON object, or has no text in the field; with file and byte offset:
// a named file that is binary or no UTF-8. A byte order mark at the front of a file is left out.
void for_each_document(const Chunk& chunk, const InputFile& input,
                       const std::function<void(const Document&)>& visit);

struct ReadOptions {
  int threads = 1;
  // InputError for a longer file, and for a longer line that is also above the 1 MB of a chunk.
  uint64_t document_max_bytes = uint64_t{1} << 30;
  // The files' hashes (InputStream::raw_hash) as they were; RunError when one differs now. Empty:
  // not checked.
  std::span<const std::string> hashes;
  // Bytes of files taken so far; never two calls at once.
  std::function<void(uint64_t bytes)> progress;
};

// Calls visit(chunk) for every chunk, on `threads` threads. A file in `skip` (by index) is not
// read.
void for_each_chunk(std::span<const InputFile> files, const ReadOptions& options,
                    const std::function<void(Chunk&)>& visit);

// Calls work(i) for i in [0, count) on `threads` threads and throws the exception of the smallest
// i.
void parallel_for(uint64_t count, int threads, const std::function<void(uint64_t)>& work);

}  // namespace trireme
