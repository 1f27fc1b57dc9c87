#include "data/corpus.h"

#include <bit>

#include "base/checksum.h"
#include "base/error.h"

namespace trireme {

static_assert(std::endian::native == std::endian::little, "the files are little-endian");
static_assert(sizeof(DocumentRecord) == 48, "documents.bin has 48 bytes a document");

namespace {

constexpr const char* kNext = "\nnext: delete the directory and build the corpus again";

// The sizes come from the manifest, so neither it nor the file is believed alone.
MappedFile map_whole(const fs::path& path, uint64_t count, uint64_t bytes_each) {
  MappedFile file(path);
  uint64_t expected = 0;
  TRIREME_CHECK(
      !__builtin_mul_overflow(count, bytes_each, &expected) && file.bytes().size() == expected,
      "data: the corpus is damaged: ", path.string(), " has ", file.bytes().size(),
      " bytes, its manifest says ", count, " x ", bytes_each, kNext);
  return file;
}

uint64_t token_count(const CorpusManifest& m) {
  return m.streams.back().first_token + m.streams.back().tokens;
}

uint64_t document_count(const CorpusManifest& m) {
  return m.streams.back().first_document + m.streams.back().documents;
}

}  // namespace

Corpus Corpus::open(const fs::path& directory) {
  const fs::path path = directory / "manifest.json";
  std::error_code error;
  TRIREME_CHECK(fs::is_regular_file(path, error), "data: ", directory.string(),
                " is no prepared corpus: it has no manifest.json");
  return Corpus(directory, parse_manifest(read_file(path), path.string()));
}

Corpus::Corpus(fs::path directory, CorpusManifest manifest)
    : directory_(std::move(directory)),
      manifest_(std::move(manifest)),
      tokens_(map_whole(directory_ / "tokens.bin", token_count(manifest_),
                        static_cast<uint64_t>(manifest_.token_bytes))),
      documents_(map_whole(directory_ / "documents.bin", document_count(manifest_),
                           sizeof(DocumentRecord))),
      token_bytes_(map_whole(directory_ / "token_bytes.bin", static_cast<uint64_t>(manifest_.vocab),
                             sizeof(uint32_t))) {}

void Corpus::verify() const {
  for (const CorpusManifest::Stored& stored : manifest_.stored) {
    const fs::path path = directory_ / fs::path(stored.name).filename();
    const MappedFile file(path);
    const uint32_t found = crc32c(file.bytes());
    TRIREME_CHECK(file.bytes().size() == stored.bytes && found == stored.crc32c,
                  "data: the corpus is damaged: ", path.string(), " has checksum ", found, " over ",
                  file.bytes().size(), " bytes, its manifest says ", stored.crc32c, " over ",
                  stored.bytes, kNext);
  }
  for (uint64_t s = 0; s < manifest_.streams.size(); ++s) {
    const auto split = static_cast<Split>(s % 2);
    uint64_t next = 0;
    for (const DocumentRecord& document : documents(s / 2, split)) {
      TRIREME_CHECK(document.first_token == next && document.tokens > 0 &&
                        document.tokens <= manifest_.streams[s].tokens - next &&
                        document.file < manifest_.files.size(),
                    "data: the corpus is damaged: ", (directory_ / "documents.bin").string(),
                    " and its manifest do not belong together", kNext);
      next += document.tokens;
    }
    TRIREME_CHECK(next == manifest_.streams[s].tokens,
                  "data: the corpus is damaged: ", name_of(split), " has ", next,
                  " tokens in documents.bin, its manifest says ", manifest_.streams[s].tokens,
                  kNext);
  }
}

std::span<const uint32_t> Corpus::bytes_by_token() const {
  return {reinterpret_cast<const uint32_t*>(token_bytes_.bytes().data()),
          static_cast<size_t>(manifest_.vocab)};
}

const CorpusStream& Corpus::stream(uint64_t part, Split split) const {
  TRIREME_ASSERT(part < parts(), "part ", part, " of ", parts());
  return manifest_.streams[2 * part + static_cast<uint64_t>(split)];
}

TokenSpan Corpus::tokens(uint64_t part, Split split) const {
  const CorpusStream& range = stream(part, split);
  const auto each = static_cast<uint64_t>(manifest_.token_bytes);
  return {tokens_.bytes().data() + range.first_token * each, range.tokens, each == 4};
}

std::span<const DocumentRecord> Corpus::documents(uint64_t part, Split split) const {
  const CorpusStream& range = stream(part, split);
  const auto* all = reinterpret_cast<const DocumentRecord*>(documents_.bytes().data());
  return {all + range.first_document, range.documents};
}

}  // namespace trireme
