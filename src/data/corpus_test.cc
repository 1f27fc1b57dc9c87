#include "data/corpus.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/test_mutation.h"
#include "data/test_corpus.h"

namespace trireme {
namespace {

using nlohmann::json;
using testing::TempDir;

class CorpusFiles : public ::testing::Test {
 protected:
  CorpusFiles() { reset(); }

  void reset() {
    testing::write_hand_corpus(dir.path / "c", {{{{1, 2, 3}, {4, 5}}, {{6}}}, {{{7, 8}}, {}}}, 10,
                               0);
  }
  fs::path path(const std::string& name) const { return dir.path / "c" / name; }

  // Whether opening, and then verifying, holds.
  bool opens() const {
    try {
      Corpus::open(dir.path / "c");
      return true;
    } catch (const InputError&) {
      return false;
    }
  }
  bool verifies() const {
    try {
      Corpus::open(dir.path / "c").verify();
      return true;
    } catch (const InputError&) {
      return false;
    }
  }
  // The manifest with one value replaced.
  void set(const char* pointer, const json& value) {
    json manifest = json::parse(read_file(path("manifest.json")));
    manifest[json::json_pointer(pointer)] = value;
    dir.file("c/manifest.json", manifest.dump());
  }

  TempDir dir;
};

TEST_F(CorpusFiles, AreReadAsTheyWereWritten) {
  const Corpus corpus = Corpus::open(dir.path / "c");
  corpus.verify();
  EXPECT_EQ(corpus.parts(), 2u);
  const TokenSpan train = corpus.tokens(0, Split::train), other = corpus.tokens(1, Split::train);
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < train.size(); ++i) ids.push_back(train[i]);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2, 3, 0, 4, 5, 0}));
  EXPECT_EQ(other.size(), 3u);
  EXPECT_EQ(other[1], 8);
  EXPECT_EQ(corpus.documents(0, Split::train)[1].first_token, 4u);
  EXPECT_EQ(corpus.tokens(0, Split::held_out)[0], 6);
  EXPECT_EQ(corpus.tokens(1, Split::held_out).size(), 0u);
  EXPECT_EQ(corpus.bytes_by_token()[9], 10u);
}

TEST_F(CorpusFiles, SurviveBeingMoved) {
  Corpus corpus = Corpus::open(dir.path / "c");
  const TokenSpan tokens = corpus.tokens(0, Split::train);
  const Corpus moved = std::move(corpus);
  EXPECT_EQ(tokens[2], 3);
  EXPECT_EQ(moved.tokens(0, Split::train)[2], 3);
}

TEST_F(CorpusFiles, CutLongerOrMissingAreFoundOnOpening) {
  for (const std::string name : {"tokens.bin", "documents.bin", "token_bytes.bin"}) {
    const std::string content = read_file(path(name));
    dir.file("c/" + name, content.substr(0, content.size() - 1));
    EXPECT_FALSE(opens()) << name;
    dir.file("c/" + name, content + "x");
    EXPECT_FALSE(opens()) << name;
    dir.file("c/" + name, "");
    EXPECT_FALSE(opens()) << name;
    fs::remove(path(name));
    EXPECT_FALSE(opens()) << name;
    reset();
  }
  fs::remove(path("manifest.json"));
  EXPECT_FALSE(opens());
  EXPECT_THROW(Corpus::open(dir.path / "nowhere"), InputError);
}

TEST_F(CorpusFiles, EveryFlippedByteIsFoundByVerifying) {
  for (const std::string name : {"tokens.bin", "documents.bin", "token_bytes.bin"}) {
    const std::string content = read_file(path(name));
    for (size_t at = 0; at < content.size(); ++at) {
      std::string flipped = content;
      flipped[at] = static_cast<char>(flipped[at] ^ 1);
      dir.file("c/" + name, flipped);
      EXPECT_TRUE(opens() && !verifies()) << name << " at " << at;
    }
    dir.file("c/" + name, content);
  }
  EXPECT_TRUE(verifies());
}

// No size in the manifest may lead outside the files, and none may make us allocate.
TEST_F(CorpusFiles, ImpossibleNumbersInTheManifestAreRefused) {
  const uint64_t huge[] = {UINT64_MAX, uint64_t{1} << 63, uint64_t{1} << 40, 8};
  for (const uint64_t value : huge)
    for (const char* pointer :
         {"/streams/0/tokens", "/streams/0/first_token", "/streams/1/first_token",
          "/streams/0/documents", "/streams/2/first_document", "/streams/3/tokens", "/vocab",
          "/end_of_text", "/begin_of_text", "/token_bytes", "/sources/0/part", "/files/0/source"}) {
      if (value == 8 && std::string_view(pointer).ends_with("_of_text")) continue;  // an id
      set(pointer, value);
      EXPECT_FALSE(opens()) << pointer << " = " << value;
      reset();
    }
  for (const json& value : {json(-1), json("7"), json(), json(1.5), json::array(), json::object()})
    for (const char* pointer :
         {"/streams/0/tokens", "/vocab", "/streams", "/files/0", "/version"}) {
      if (std::string_view(pointer) == "/streams/0/tokens" && value == json(1.5)) continue;
      set(pointer, value);
      EXPECT_FALSE(opens()) << pointer << " = " << value;
      reset();
    }
  // Two lengths that only together come back to the size of the file.
  set("/streams/0/tokens", UINT64_MAX);
  set("/streams/1/first_token", UINT64_MAX);
  set("/streams/1/tokens", 10);
  EXPECT_FALSE(opens());
  reset();
  set("/format", "another");
  EXPECT_FALSE(opens());
  reset();
  set("/version", 1);
  EXPECT_FALSE(opens());
}

TEST_F(CorpusFiles, AManifestCutAnywhereIsRefused) {
  const std::string content = read_file(path("manifest.json"));
  for (size_t length = 0; length + 3 < content.size(); length += 7) {
    dir.file("c/manifest.json", content.substr(0, length));
    EXPECT_FALSE(opens()) << length;
  }
  dir.file("c/manifest.json", std::string(300'000, '['));
  EXPECT_FALSE(opens());
}

// The stored names are the manifest's word, too.
TEST_F(CorpusFiles, VerifyingReadsNothingOutsideTheDirectory) {
  dir.file("outside", read_file(path("tokens.bin")));
  set("/stored/0/name", "../outside");
  EXPECT_TRUE(opens());
  EXPECT_FALSE(verifies());
}

TEST(Manifest, ComesBackAsItWas) {
  CorpusManifest m;
  m.id = "0123456789abcdef";
  m.held_out = 0.05;
  m.tokenizer = "a \"name\"";
  m.vocab = 70'000;
  m.begin_of_text = 3;
  m.end_of_text = 69'999;
  m.token_bytes = 4;
  m.streams = {{0, 5, 0, 1, 4}, {5, 3, 1, 2, UINT64_MAX}};
  m.sources.resize(1);
  m.sources[0].path = "\xFF not UTF-8";
  m.files = {{"f", 0, "hash", 1, 2, 3, 4, 5}};
  m.stored = {{"tokens.bin", 6, 0xFFFFFFFF}};
  const CorpusManifest back = parse_manifest(to_json(m), "test");
  EXPECT_EQ(to_json(back), to_json(m));
  EXPECT_EQ(back.streams[1].text_bytes, UINT64_MAX);
  EXPECT_EQ(back.stored[0].crc32c, 0xFFFFFFFF);
  EXPECT_EQ(back.begin_of_text, 3);
  EXPECT_EQ(back.files[0].left_out_documents, 5u);
}

TEST(Manifest, SurvivesMutations) {
  CorpusManifest m;
  m.vocab = 300;
  m.end_of_text = 299;
  m.token_bytes = 2;
  m.streams = {{0, 5, 0, 1, 4}, {5, 3, 1, 2, 9}};
  m.sources.resize(1);
  m.files = {{"f", 0, "hash", 1, 2, 3, 4, 5}};
  m.stored = {{"tokens.bin", 16, 7}};
  const std::string sound = to_json(m);
  testing::survive(
      1, 3000, [&](testing::Mutator& mutator) { parse_manifest(mutator.either(sound), "test"); });
}

}  // namespace
}  // namespace trireme
