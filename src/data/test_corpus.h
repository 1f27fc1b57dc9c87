// For tests only: a directory that goes away, and a corpus written by hand, without the code that
// builds one.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/checksum.h"
#include "base/error.h"
#include "base/files.h"
#include "data/corpus.h"

namespace trireme::testing {

// Without waiting for the disk.
inline void write_quickly(const fs::path& path, std::string_view content) {
  std::ofstream out(path, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.close();
  TRIREME_ASSERT(out.good());
}

struct TempDir {
  TempDir() {
    static std::atomic<int> count = 0;
    path = fs::temp_directory_path() / concat("trireme-data-", ::getpid(), "-", count++);
    make_directories(path);
  }
  ~TempDir() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  TempDir(const TempDir&) = delete;

  // Writes a file below, and returns its path.
  fs::path file(const fs::path& name, std::string_view content) const {
    make_directories((path / name).parent_path());
    write_quickly(path / name, content);
    return path / name;
  }

  fs::path path;
};

// Token ids of one document, without its end-of-text.
using Ids = std::vector<int32_t>;
struct HandPart {
  std::vector<Ids> train, held_out;
};

// Id i stands for i + 1 bytes of text; `end_of_text` and `begin_of_text` for none.
inline Corpus write_hand_corpus(const fs::path& directory, const std::vector<HandPart>& parts,
                                int64_t vocab, int32_t end_of_text,
                                std::optional<int32_t> begin_of_text = {}) {
  make_directories(directory);
  CorpusManifest manifest;
  manifest.id = directory.filename().string();
  manifest.vocab = vocab;
  manifest.end_of_text = end_of_text;
  manifest.begin_of_text = begin_of_text;
  manifest.token_bytes = vocab <= 65536 ? 2 : 4;
  manifest.files.push_back({.name = "hand", .xxh128 = ""});
  std::string tokens, records, token_bytes;
  const auto append = [](std::string& to, const auto& value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  uint64_t first_token = 0, first_document = 0;
  for (const HandPart& part : parts) {
    CorpusSource& source = manifest.sources.emplace_back();
    source.path = "hand";
    source.part = manifest.sources.size() - 1;
    for (const auto* documents : {&part.train, &part.held_out}) {
      CorpusStream stream{.first_token = first_token, .first_document = first_document};
      for (Ids ids : *documents) {
        if (begin_of_text) ids.insert(ids.begin(), *begin_of_text);
        ids.push_back(end_of_text);
        append(records, DocumentRecord{.first_token = stream.tokens,
                                       .tokens = ids.size(),
                                       .bytes = 0,
                                       .hash = 0,
                                       .line = stream.documents + 1,
                                       .file = 0});
        for (const int32_t id : ids)
          manifest.token_bytes == 2 ? append(tokens, static_cast<uint16_t>(id))
                                    : append(tokens, id);
        stream.tokens += ids.size();
        ++stream.documents;
      }
      first_token += stream.tokens;
      first_document += stream.documents;
      manifest.streams.push_back(stream);
    }
  }
  for (int64_t id = 0; id < vocab; ++id)
    append(token_bytes,
           static_cast<uint32_t>(id == end_of_text || id == begin_of_text ? 0 : id + 1));
  for (const auto& [name, content] :
       {std::pair("tokens.bin", &tokens), std::pair("documents.bin", &records),
        std::pair("token_bytes.bin", &token_bytes)}) {
    write_quickly(directory / name, *content);
    manifest.stored.push_back({name, content->size(),
                               crc32c(std::as_bytes(std::span(content->data(), content->size())))});
  }
  write_quickly(directory / "manifest.json", to_json(manifest));
  return Corpus::open(directory);
}

}  // namespace trireme::testing
