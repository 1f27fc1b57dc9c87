#include "data/document_reader.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/random.h"
#include "data/input_stream.h"
#include "data/test_corpus.h"

namespace trireme {
namespace {

using nlohmann::json;
using testing::TempDir;

struct Read {
  uint64_t file, line;
  Fault fault;
  std::string text;
  auto operator<=>(const Read&) const = default;
};

struct Files {
  std::vector<SourceFile> files;
  std::vector<InputFile> inputs;

  void add(const fs::path& path, bool named = true) {
    SourceFile file = stat_file(path, path.filename().string(), "test");
    file.named = named;
    files.push_back(file);
  }

  // All documents, ordered by file and line.
  std::vector<Read> read(int threads, uint64_t document_max_bytes = 1 << 30,
                         std::span<const std::string> hashes = {}) {
    inputs.clear();
    for (const SourceFile& file : files) inputs.push_back({&file, "text"});
    ReadOptions options;
    options.threads = threads;
    options.document_max_bytes = document_max_bytes;
    options.hashes = hashes;
    std::vector<Read> documents;
    std::vector<uint64_t> numbers;
    std::mutex mutex;
    for_each_chunk(inputs, options, [&](Chunk& chunk) {
      std::vector<Read> of_chunk;
      for_each_document(chunk, inputs[chunk.file], [&](const Document& document) {
        of_chunk.push_back({chunk.file, document.line, document.fault, std::string(document.text)});
      });
      const std::lock_guard lock(mutex);
      documents.insert(documents.end(), of_chunk.begin(), of_chunk.end());
      numbers.push_back(chunk.number);
    });
    std::sort(numbers.begin(), numbers.end());
    for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], i);
    std::sort(documents.begin(), documents.end());
    return documents;
  }

  std::string error_of_reading(int threads = 1, uint64_t document_max_bytes = 1 << 30) {
    try {
      read(threads, document_max_bytes);
    } catch (const InputError& error) {
      return error.what();
    }
    return "no error";
  }
};

// Lines of all lengths, also longer than a chunk of 1 MB, with empty lines between, so that line
// ends fall everywhere around the edges of chunks.
TEST(DocumentReader, LinesAreThoseOfANaiveSplit) {
  const TempDir dir;
  const RandomStream random(5, "lines");
  std::string content;
  std::vector<Read> expected;
  uint64_t line = 0;
  for (uint64_t i = 0; content.size() < 6'000'000; ++i) {
    ++line;
    if (random.below(3 * i, 10) == 0) {
      content += i % 2 ? "\n" : "  \r\n";
      continue;
    }
    const uint64_t length =
        random.below(3 * i + 1, 100) == 0 ? 1'300'000 : random.below(3 * i + 2, 9000);
    const std::string text(length, static_cast<char>('a' + i % 26));
    content += json({{"id", i}, {"text", text}}).dump() + "\n";
    expected.push_back({0, line, text.empty() ? Fault::empty : Fault::none, text});
  }
  content += json({{"text", "no line feed behind the last"}}).dump();
  expected.push_back({0, line + 1, Fault::none, "no line feed behind the last"});
  Files files;
  files.add(dir.file("a.jsonl", content));
  EXPECT_TRUE(files.read(1) == expected);
  EXPECT_TRUE(files.read(4) == expected);
}

TEST(DocumentReader, AFileIsADocumentWhateverItHolds) {
  const TempDir dir;
  Files files;
  files.add(dir.file("a.txt", "first\nsecond\n"));
  files.add(dir.file("b.json", "{\"text\": \"as it is\"}\n"));
  files.add(dir.file("empty.txt", ""));
  files.add(dir.file("mark.txt", "\xEF\xBB\xBFmarked"));
  files.add(dir.file("only_mark.txt", "\xEF\xBB\xBF"));
  files.add(dir.file("mark.jsonl", "\xEF\xBB\xBF{\"text\": \"marked\"}\n"));
  files.add(dir.file("empty.jsonl", ""));
  const std::vector<Read> expected = {{0, 0, Fault::none, "first\nsecond\n"},
                                      {1, 0, Fault::none, "{\"text\": \"as it is\"}\n"},
                                      {2, 0, Fault::empty, ""},
                                      {3, 0, Fault::none, "marked"},
                                      {4, 0, Fault::empty, ""},
                                      {5, 1, Fault::none, "marked"}};
  EXPECT_EQ(files.read(1), expected);
  EXPECT_EQ(files.read(3), expected);
}

TEST(DocumentReader, AFoundFileIsLeftOutANamedOneIsAnError) {
  const TempDir dir;
  const fs::path binary = dir.file("binary.txt", std::string("some\0thing", 10));
  const fs::path latin = dir.file("latin.txt", "na\xEFve");
  const fs::path lines = dir.file("lines.jsonl",
                                  "{\"text\": \"good\"}\n{\"text\": \"b\xE4"
                                  "d\"}\n{\"text\": \"good\"}\n");
  Files found;
  for (const fs::path& path : {binary, latin, lines}) found.add(path, false);
  EXPECT_EQ(found.read(2), (std::vector<Read>{{0, 0, Fault::binary, ""},
                                              {1, 0, Fault::encoding, ""},
                                              {2, 1, Fault::none, "good"},
                                              {2, 2, Fault::encoding, ""},
                                              {2, 3, Fault::none, "good"}}));
  const auto error_of = [](const fs::path& path) {
    Files named;
    named.add(path);
    return named.error_of_reading();
  };
  EXPECT_NE(error_of(binary).find("binary.txt as text: it is a binary file: 0x00 at byte 4\n"),
            std::string::npos);
  EXPECT_NE(error_of(latin).find("latin.txt as text: it is not UTF-8: 0xEF at byte 2\n"),
            std::string::npos);
  EXPECT_NE(error_of(lines).find("lines.jsonl as text: it is not UTF-8: 0xE4 at byte 28\n"),
            std::string::npos);
}

TEST(DocumentReader, OffsetsCountFromTheFrontOfTheFile) {
  const TempDir dir;
  std::string content = "\xEF\xBB\xBF";
  while (content.size() < 3'000'000) content += "{\"text\": \"" + std::string(997, 'x') + "\"}\n";
  const size_t at = 2'500'000;
  content[at] = '\0';
  Files files;
  files.add(dir.file("a.jsonl", content));
  EXPECT_NE(files.error_of_reading().find("0x00 at byte 2500000\n"), std::string::npos);
}

TEST(DocumentReader, SaysWhatIsWrongWithALine) {
  const TempDir dir;
  const auto error_of = [&](const std::string& line, bool named) {
    Files files;
    files.add(dir.file("a.jsonl", "{\"text\": \"good\"}\n\n" + line + "\n"), named);
    return files.error_of_reading();
  };
  for (const bool named : {false, true}) {  // wrong either way: nothing says that it is no text
    EXPECT_NE(error_of("{\"text\": \"open", named).find("a.jsonl:3: expected one JSON object"),
              std::string::npos);
    EXPECT_NE(error_of("[1]", named).find("a.jsonl:3: expected one JSON object"),
              std::string::npos);
    EXPECT_NE(error_of("\"text\"", named).find("a.jsonl:3: expected one JSON object"),
              std::string::npos);
    EXPECT_NE(error_of("{\"text\": \"a\"} {}", named).find("a.jsonl:3: expected one JSON object"),
              std::string::npos);
    EXPECT_NE(
        error_of("{\"text\": \"a\", \"n\": 1, \"text\": \"b\"}", named)
            .find("a.jsonl:3: expected one JSON object a line: the key \"text\" occurs twice"),
        std::string::npos);
    EXPECT_NE(error_of("{\"body\": {\"inner\": 2}, \"n\": 1}", named)
                  .find("a.jsonl:3: no field \"text\"; there are: body, n\n"),
              std::string::npos);
    EXPECT_NE(error_of("{\"text\": 5}", named).find("a.jsonl:3: the field \"text\" is not a text"),
              std::string::npos);
    EXPECT_NE(error_of("{\"a\": {\"text\": \"inner\"}}", named).find("no field \"text\""),
              std::string::npos);
  }
}

TEST(DocumentReader, DeepJsonTakesNoStack) {
  const TempDir dir;
  const std::string deep(500'000, '[');
  Files files;
  files.add(
      dir.file("a.jsonl", "{\"a\": " + deep + std::string(500'000, ']') + ", \"text\": \"t\"}"));
  EXPECT_EQ(files.read(1), (std::vector<Read>{{0, 1, Fault::none, "t"}}));
}

// 64 MB of zeros in 64 kB: reading stops at the bound and not at the end.
TEST(DocumentReader, ABombEndsAtTheBound) {
  const TempDir dir;
  const fs::path path = dir.path / "bomb.txt.gz";
  const gzFile file = gzopen(path.c_str(), "wb9");
  const std::string block(1 << 20, 'a');
  for (int i = 0; i < 64; ++i) gzwrite(file, block.data(), static_cast<unsigned>(block.size()));
  gzclose(file);
  ASSERT_LT(fs::file_size(path), 100'000u);
  Files files;
  files.add(path);
  EXPECT_NE(files.error_of_reading(1, 5 << 20).find("bomb.txt.gz: a document of more than 5242880"),
            std::string::npos);
  EXPECT_EQ(files.read(1, 64 << 20).at(0).text.size(), size_t{64} << 20);
  files.files.clear();
  files.add(dir.file("line.jsonl", "{\"text\": \"a\"}\n{\"text\": \"" + std::string(4 << 20, 'x')));
  EXPECT_NE(
      files.error_of_reading(1, 2 << 20).find("line.jsonl:2: a document of more than 2097152"),
      std::string::npos);
}

// Three bad files: whatever thread meets which first, the first in order is named.
TEST(DocumentReader, TheFirstErrorIsReported) {
  const TempDir dir;
  Files files;
  for (int i = 0; i < 40; ++i) {
    const std::string name = concat("f", i, ".txt");
    files.add(dir.file(name, i == 17 || i == 18 || i == 39 ? std::string(1, '\0') : "fine"));
  }
  for (int round = 0; round < 20; ++round)
    EXPECT_NE(files.error_of_reading(4).find("f17.txt"), std::string::npos);
}

TEST(DocumentReader, AFileThatChangesIsNoticed) {
  const TempDir dir;
  Files files;
  files.add(dir.file("a.txt", "before"));
  const std::vector<std::string> hashes = {hash_file(files.files[0].path).xxh128};
  EXPECT_NO_THROW(files.read(1, 1 << 30, hashes));
  dir.file("a.txt", "behind");
  EXPECT_THROW(files.read(1, 1 << 30, hashes), RunError);
}

TEST(ParallelFor, DoesEachPieceOnceAndThrowsTheFirstFailure) {
  for (const int threads : {1, 3}) {
    std::vector<int> done(1000, 0);
    parallel_for(1000, threads, [&](uint64_t i) { ++done[i]; });
    EXPECT_EQ(std::ranges::count(done, 1), 1000);
    EXPECT_NO_THROW(parallel_for(0, threads, [](uint64_t) { throw RunError("none"); }));
    try {
      parallel_for(100, threads, [](uint64_t i) {
        if (i >= 40) throw RunError(std::to_string(i));
      });
      FAIL();
    } catch (const RunError& error) {
      EXPECT_STREQ(error.what(), "40");
    }
  }
}

}  // namespace
}  // namespace trireme
