#include "data/corpus_build.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/random.h"
#include "data/corpus_inputs.h"
#include "data/input_stream.h"
#include "data/test_corpus.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/train.h"

namespace trireme {
namespace {

using testing::TempDir;

SourceOptions entry(const fs::path& path, std::optional<double> weight = std::nullopt) {
  SourceOptions options;
  options.path = path.string();
  options.weight = weight;
  return options;
}

CorpusOptions options_of(const TempDir& dir, const char* cache = "cache") {
  CorpusOptions options;
  options.sources = {entry(dir.path / "text")};
  options.train_vocab = 300;
  options.cache = dir.path / cache;
  options.held_out = 0.2;
  return options;
}

// Words of a document of its own.
std::string text_of(uint64_t seed, uint64_t words) {
  static constexpr const char* all[] = {"oar",  "hull", "tide", "crew", "sail",
                                        "mast", "\n",   "=",    "42"};
  const RandomStream random(seed, "text");
  std::string text = concat("# ", seed, "\n");
  for (uint64_t i = 0; i < words; ++i) text += concat(all[random.below(i, std::size(all))], " ");
  return text;
}

// Text files, and one .jsonl file, in `text`.
void write_texts(const TempDir& dir, int files, int lines = 30) {
  for (int i = 0; i < files; ++i)
    dir.file(concat("text/", i % 3, "/f", i, ".txt"), text_of(static_cast<uint64_t>(i), 40));
  std::string jsonl;
  for (int i = 0; i < lines; ++i)
    jsonl += concat("{\"text\": \"line ", i, " of \\u00e4ll\"}\n", i % 5 == 0 ? "\n" : "");
  if (lines > 0) dir.file("text/lines.jsonl", jsonl);
}

std::map<std::string, std::string> contents_of(const fs::path& directory) {
  std::map<std::string, std::string> contents;
  for (const auto& file : fs::directory_iterator(directory))
    contents[file.path().filename().string()] = read_file(file.path());
  return contents;
}

std::set<std::string> names_in(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& file : fs::directory_iterator(directory))
    names.insert(file.path().filename().string());
  return names;
}

std::string text_of(const Corpus& corpus, const Tokenizer& tokenizer, uint64_t part, Split split,
                    const DocumentRecord& document) {
  const TokenSpan tokens = corpus.tokens(part, split);
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i + 1 < document.tokens; ++i)
    ids.push_back(tokens[document.first_token + i]);
  EXPECT_EQ(tokens[document.first_token + document.tokens - 1], corpus.end_of_text());
  return tokenizer.decode(ids);
}

std::multiset<std::string> texts_of(const Corpus& corpus, uint64_t part, Split split) {
  const Tokenizer tokenizer = Tokenizer::load(corpus.tokenizer_path());
  std::multiset<std::string> texts;
  for (const DocumentRecord& document : corpus.documents(part, split))
    texts.insert(text_of(corpus, tokenizer, part, split, document));
  return texts;
}

// Every document decodes to the text that a plain reading of its file gives.
TEST(CorpusBuild, HoldsEveryDocumentOnce) {
  const TempDir dir;
  write_texts(dir, 40);
  dir.file("text/empty.py", "");
  const Corpus corpus = open_or_build(options_of(dir));
  corpus.verify();
  const Tokenizer tokenizer = Tokenizer::load(corpus.tokenizer_path());
  std::set<std::pair<std::string, uint64_t>> seen;
  for (const Split split : {Split::train, Split::held_out}) {
    uint64_t bytes = 0;
    for (const DocumentRecord& document : corpus.documents(0, split)) {
      const CorpusFile& file = corpus.manifest().files.at(document.file);
      const std::string text = text_of(corpus, tokenizer, 0, split, document);
      if (document.line == 0) {
        EXPECT_EQ(text, read_file(file.name));
      } else {  // each fifth line is followed by an empty one
        const uint64_t i = (document.line - 1) * 5 / 6;
        EXPECT_EQ(text, concat("line ", i, " of \u00e4ll"));
      }
      EXPECT_EQ(document.bytes, text.size());
      EXPECT_TRUE(seen.emplace(file.name, document.line).second);
      bytes += text.size();
    }
    EXPECT_EQ(corpus.stream(0, split).text_bytes, bytes);
  }
  EXPECT_EQ(seen.size(), 70u);
  EXPECT_EQ(corpus.manifest().sources.at(0).empty, 1u);
  for (const CorpusFile& file : corpus.manifest().files) {
    EXPECT_EQ(file.xxh128, hash_file(file.name).xxh128);
    EXPECT_EQ(file.bytes, fs::file_size(file.name));
  }
}

TEST(CorpusBuild, CountsAddUp) {
  const TempDir dir;
  write_texts(dir, 40);
  const Corpus corpus = open_or_build(options_of(dir));
  uint64_t documents = 0, held_out = 0, tokens = 0;
  for (const CorpusFile& file : corpus.manifest().files) {
    documents += file.documents;
    held_out += file.held_out_documents;
    tokens += file.tokens;
  }
  const CorpusStream train = corpus.stream(0, Split::train),
                     held = corpus.stream(0, Split::held_out);
  EXPECT_EQ(documents, train.documents + held.documents);
  EXPECT_EQ(held_out, held.documents);
  EXPECT_EQ(tokens, train.tokens + held.tokens);
  EXPECT_EQ(corpus.bytes_by_token()[static_cast<size_t>(corpus.end_of_text())], 0u);
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < train.tokens; ++i)
    bytes += corpus.bytes_by_token()[static_cast<size_t>(corpus.tokens(0, Split::train)[i])];
  EXPECT_EQ(bytes, train.text_bytes);
}

TEST(CorpusBuild, IsTheSameForAnyNumberOfThreads) {
  const TempDir dir;
  write_texts(dir, 60, 2000);
  CorpusOptions one = options_of(dir, "one"), four = options_of(dir, "four");
  four.threads = 4;
  const fs::path a = build_corpus(one).directory, b = build_corpus(four).directory;
  EXPECT_EQ(a.filename(), b.filename());
  EXPECT_TRUE(contents_of(a) == contents_of(b));
}

TEST(CorpusBuild, DocumentsAreShuffled) {
  const TempDir dir;
  write_texts(dir, 0, 500);
  const Corpus corpus = open_or_build(options_of(dir));
  const auto documents = corpus.documents(0, Split::train);
  int rising = 0;
  for (size_t i = 1; i < documents.size(); ++i) rising += documents[i - 1].line < documents[i].line;
  // About half of the pairs rise in a shuffle: 400 pairs, deviation 6; ten of them.
  EXPECT_NEAR(rising, static_cast<double>(documents.size()) / 2, 60);
}

TEST(CorpusBuild, BuildingAgainDoesNothing) {
  const TempDir dir;
  write_texts(dir, 10);
  const BuildResult first = build_corpus(options_of(dir));
  EXPECT_TRUE(first.built);
  const auto time = fs::last_write_time(first.directory / "manifest.json");
  const BuildResult second = build_corpus(options_of(dir));
  EXPECT_FALSE(second.built);
  EXPECT_EQ(second.directory, first.directory);
  EXPECT_EQ(fs::last_write_time(first.directory / "manifest.json"), time);
}

TEST(CorpusBuild, AnyInputThatMattersMakesAnotherCorpus) {
  const TempDir dir;
  write_texts(dir, 10);
  const CorpusOptions base = options_of(dir);
  std::set<fs::path> seen = {build_corpus(base).directory};
  const auto expect_new = [&](const CorpusOptions& options, const char* what) {
    EXPECT_TRUE(seen.insert(build_corpus(options).directory).second) << what;
  };
  CorpusOptions changed = base;
  changed.train_vocab = 290;
  expect_new(changed, "vocab");
  changed = base;
  changed.held_out = 0.3;
  expect_new(changed, "held_out");
  changed = base;
  changed.sources.insert(changed.sources.begin(), entry(dir.path / "text/lines.jsonl"));
  expect_new(changed, "sources");
  changed = base;
  changed.sources[0].weight = 1;
  changed.tokenizer = *seen.begin() / "tokenizer.json";
  changed.train_vocab = 0;
  expect_new(changed, "tokenizer");
  // The same length, and the time put back: the content tells.
  const fs::path file = dir.path / "text/0/f0.txt";
  const auto time = fs::last_write_time(file);
  std::string content = read_file(file);
  content[0] = '%';
  dir.file("text/0/f0.txt", content);
  fs::last_write_time(file, time);
  expect_new(base, "content");
  fs::rename(file, dir.path / "text/0/f00.txt");
  expect_new(base, "name");
}

TEST(CorpusBuild, TimesAndThreadsAndWeightsMakeNoOther) {
  const TempDir dir;
  write_texts(dir, 10);
  CorpusOptions options = options_of(dir);
  options.sources[0].weight = 1;
  const fs::path directory = build_corpus(options).directory;
  fs::last_write_time(dir.path / "text/0/f0.txt", fs::file_time_type::clock::now());
  options.threads = 2;
  options.sources[0].weight = 3;
  EXPECT_EQ(build_corpus(options).directory, directory);
}

// Files that were left alone for long are known by their times; here the Python library's.
TEST(CorpusBuild, OldFilesAreNotReadAgain) {
  const TempDir dir;
  const std::vector<SourceOptions> library = {entry("python-stdlib")};
  CorpusOptions options = options_of(dir);
  options.sources = {entry(list_sources(library)[0].origin + "/json")};
  const fs::path directory = build_corpus(options).directory;
  ASSERT_EQ(names_in(options.cache / "seen").size(), 1u);
  bool read = false;
  const BuildProgress notice = [&](std::string_view, uint64_t, uint64_t) { read = true; };
  EXPECT_EQ(build_corpus(options, notice).directory, directory);
  EXPECT_FALSE(read);
  // A note that is damaged, or of a corpus that is gone, is no reason to fail.
  const fs::path note = options.cache / "seen" / *names_in(options.cache / "seen").begin();
  make_directories(dir.path / "elsewhere");
  fs::copy(directory, dir.path / "elsewhere/a");
  for (const char* wrong : {"", "../elsewhere/a", "0123456789abcdef"}) {
    write_file(note, wrong);
    EXPECT_EQ(build_corpus(options, notice).directory, directory) << wrong;
    EXPECT_TRUE(std::exchange(read, false)) << wrong;
  }
}

TEST(CorpusBuild, FreshFilesAreNotTrustedToTheirTimes) {
  const TempDir dir;
  write_texts(dir, 3);
  const CorpusOptions options = options_of(dir);
  build_corpus(options);
  EXPECT_FALSE(fs::exists(options.cache / "seen"));
  CorpusInputs inputs = list_inputs(options);
  const int64_t second = 1'000'000'000;
  int64_t newest = 0;
  for (const InputFile& input : inputs.files)
    newest = std::max({newest, input.file->modified_ns, input.file->changed_ns});
  EXPECT_FALSE(trusts_times(inputs, newest + 2 * second));
  EXPECT_TRUE(trusts_times(inputs, newest + 2 * second + 1));
  // Everything that tells that a file was touched is in the name.
  std::set<std::string> names = {stat_id(options, inputs)};
  SourceFile& file = inputs.listings[0].files[1];
  ++file.bytes, names.insert(stat_id(options, inputs));
  ++file.inode, names.insert(stat_id(options, inputs));
  ++file.device, names.insert(stat_id(options, inputs));
  ++file.modified_ns, names.insert(stat_id(options, inputs));
  ++file.changed_ns, names.insert(stat_id(options, inputs));
  file.name += "x", names.insert(stat_id(options, inputs));
  EXPECT_EQ(names.size(), 7u);
}

TEST(CorpusBuild, NothingHeldOutIsTrainedOn) {
  const TempDir dir;
  std::string lines;
  for (int i = 0; i < 4000; ++i) lines += concat("{\"text\": \"document ", i % 1500, "\"}\n");
  dir.file("text/a.jsonl", lines);
  CorpusOptions options = options_of(dir);
  options.held_out = 0.05;
  const Corpus corpus = open_or_build(options);
  const auto train = texts_of(corpus, 0, Split::train), held = texts_of(corpus, 0, Split::held_out);
  EXPECT_EQ(train.size() + held.size(), 4000u);
  for (const std::string& text : held) EXPECT_FALSE(train.contains(text)) << text;
  // 1,500 contents at 5 %: expected 75, deviation 8.4; five of them.
  EXPECT_NEAR(static_cast<double>(std::set(held.begin(), held.end()).size()), 75, 42);
}

TEST(CorpusBuild, MoreDocumentsMoveNoneToTheOtherSide) {
  const TempDir dir;
  const auto write = [&](int count) {
    std::string lines;
    for (int i = 0; i < count; ++i) lines += concat("{\"text\": \"document ", i, "\"}\n");
    dir.file("text/a.jsonl", lines);
  };
  write(3000);  // expected 600, deviation 22: the threshold stays where it is
  const auto before = texts_of(open_or_build(options_of(dir)), 0, Split::held_out);
  write(5000);
  const auto after = texts_of(open_or_build(options_of(dir)), 0, Split::held_out);
  EXPECT_TRUE(std::ranges::includes(after, before));
  EXPECT_GT(after.size(), before.size());
}

// The share is that of a plain count, whatever the hashes of a few documents happen to be.
TEST(CorpusBuild, TheShareIsKeptInSmallCorpora) {
  const TempDir dir;
  for (const auto& [documents, share] :
       {std::pair(20, 0.05), {60, 0.05}, {100, 0.2}, {300, 0.05}, {50, 0.5}, {40, 0.9}})
    for (int round = 0; round < 5; ++round) {
      std::string lines;
      for (int i = 0; i < documents; ++i)
        lines += concat("{\"text\": \"", round, " document ", i, "\"}\n");
      dir.file("text/a.jsonl", lines);
      CorpusOptions options = options_of(dir);
      options.held_out = share;
      const auto held = open_or_build(options).stream(0, Split::held_out).documents;
      EXPECT_NEAR(static_cast<double>(held), documents * share, 1 + documents * share * 0.1)
          << documents << " " << share;
    }
}

TEST(CorpusBuild, TwoDocumentsAreEnoughToHoldOneOut) {
  const TempDir dir;
  for (const double share : {0.001, 0.999})
    for (int i = 0; i < 8; ++i) {
      dir.file("text/a.txt", text_of(static_cast<uint64_t>(2 * i), 50));
      dir.file("text/b.txt", text_of(static_cast<uint64_t>(2 * i + 1), 50));
      CorpusOptions options = options_of(dir);
      options.held_out = share;
      const Corpus corpus = open_or_build(options);
      EXPECT_EQ(corpus.stream(0, Split::train).documents, 1u);
      EXPECT_EQ(corpus.stream(0, Split::held_out).documents, 1u);
    }
}

TEST(CorpusBuild, TheTokenizerKnowsTheTrainSplitOnly) {
  const TempDir dir;
  write_texts(dir, 40);
  const Corpus corpus = open_or_build(options_of(dir));
  const auto train = texts_of(corpus, 0, Split::train);
  BpeTraining training;
  training.vocab = 300;
  const std::vector<std::string_view> documents(train.begin(), train.end());
  EXPECT_EQ(read_file(corpus.tokenizer_path()), train_bpe(documents, training).to_json());
}

TEST(CorpusBuild, AGivenTokenizerIsUsed) {
  const TempDir dir;
  write_texts(dir, 10, 0);
  const std::string_view text = "hull hull hull tide tide";
  BpeTraining training;
  training.vocab = 262;
  const Tokenizer tokenizer = train_bpe({&text, 1}, training);
  CorpusOptions options = options_of(dir);
  options.train_vocab = 0;
  options.tokenizer = dir.file("t.json", tokenizer.to_json());
  const Corpus corpus = open_or_build(options);
  EXPECT_EQ(corpus.vocab(), tokenizer.vocab_size());
  EXPECT_EQ(Tokenizer::load(corpus.tokenizer_path()).fingerprint(), tokenizer.fingerprint());
  const DocumentRecord& document = corpus.documents(0, Split::train)[0];
  const std::string file = corpus.manifest().files[document.file].name;
  EXPECT_EQ(document.tokens, tokenizer.encode(read_file(file)).size() + 1);
  training.vocab = 261;
  dir.file("t.json", train_bpe({&text, 1}, training).to_json());
  EXPECT_NE(build_corpus(options).directory, corpus.directory());
  dir.file("t.json", "{}");
  EXPECT_THROW(build_corpus(options), InputError);
  options.tokenizer = dir.path / "none.json";
  EXPECT_THROW(build_corpus(options), InputError);
}

// A document may spell the end of text; that must not end it.
TEST(CorpusBuild, ATextThatSpellsTheEndOfTextStaysOneDocument) {
  const TempDir dir;
  write_texts(dir, 10, 0);
  dir.file("text/spell.txt", "before <|endoftext|> behind");
  const Corpus corpus = open_or_build(options_of(dir));
  auto all = texts_of(corpus, 0, Split::train);
  all.merge(texts_of(corpus, 0, Split::held_out));
  EXPECT_EQ(all.count("before <|endoftext|> behind"), 1u);
  uint64_t ends = 0;
  for (const Split split : {Split::train, Split::held_out})
    for (uint64_t i = 0; i < corpus.tokens(0, split).size(); ++i)
      ends += corpus.tokens(0, split)[i] == corpus.end_of_text();
  EXPECT_EQ(ends, 11u);
}

TEST(CorpusBuild, ABlendKeepsItsSourcesApart) {
  const TempDir dir;
  write_texts(dir, 30);
  CorpusOptions options = options_of(dir);
  options.sources = {entry(dir.path / "text/0", 0.5), entry(dir.path / "text/lines.jsonl", 0.5)};
  const Corpus corpus = open_or_build(options);
  ASSERT_EQ(corpus.parts(), 2u);
  for (uint64_t part = 0; part < 2; ++part)
    for (const Split split : {Split::train, Split::held_out})
      for (const DocumentRecord& document : corpus.documents(part, split))
        EXPECT_EQ(corpus.manifest().files[document.file].source, part);
  EXPECT_EQ(texts_of(corpus, 1, Split::train).size() + texts_of(corpus, 1, Split::held_out).size(),
            30u);
  options.sources[1].weight.reset();
  EXPECT_THROW(build_corpus(options), InputError);
}

// What a folder has beside text is left out and counted.
TEST(CorpusBuild, WhatIsNoTextIsCounted) {
  const TempDir dir;
  write_texts(dir, 10);
  dir.file("text/binary.txt", std::string("\0\1\2", 3));
  dir.file("text/latin.py", "caf\xE9");
  dir.file("text/picture.png", "\x89PNG");
  const Corpus corpus = open_or_build(options_of(dir));
  const CorpusSource& source = corpus.manifest().sources[0];
  EXPECT_EQ(source.binary, 1u);
  EXPECT_EQ(source.encoding, 1u);
  EXPECT_EQ(source.other_kinds, 1u);
  CorpusOptions named = options_of(dir);
  named.sources.insert(named.sources.begin(), entry(dir.path / "text/latin.py"));
  EXPECT_THROW(build_corpus(named), InputError);
}

TEST(CorpusBuild, AFailureLeavesNothingBehind) {
  const TempDir dir;
  const auto expect_error = [&](const CorpusOptions& options, std::string_view part) {
    try {
      build_corpus(options);
      ADD_FAILURE() << "no error, expected: " << part;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    const bool made = fs::exists(options.cache);
    EXPECT_TRUE(!made || names_in(options.cache) == std::set<std::string>{"locks"}) << part;
  };
  CorpusOptions options = options_of(dir);
  expect_error(options, "does not exist");
  dir.file("text/a.txt", "");
  expect_error(options, "the corpus is empty");
  dir.file("text/a.txt", "one document");
  dir.file("text/b.txt", "one document");
  expect_error(options, "nothing can be held out");
  dir.file("text/b.txt", "another document");
  dir.file("text/b.jsonl", "{\"body\": 1}\n");
  expect_error(options, "b.jsonl:1: no field \"text\"");
  fs::remove(dir.path / "text/b.jsonl");
  options.document_max_bytes = 14;
  expect_error(options, "a document of more than 14 bytes");
  options = options_of(dir);
  options.train_vocab = 100;
  expect_error(options, "");  // no room for the bytes
  options = options_of(dir);
  options.cache = dir.path / "text/a.txt/cache";
  EXPECT_THROW(build_corpus(options), InputError);
}

TEST(CorpusBuild, LeftoversOfTheKilledAreRemovedThoseOfTheLivingStay) {
  const TempDir dir;
  write_texts(dir, 5);
  const CorpusOptions options = options_of(dir);
  dir.file("cache/0000000000000000.partial/tokens.bin.partial-1-0", "half");
  dir.file("cache/1111111111111111.partial/spill.bin", "half");
  make_directories(options.cache / "locks");
  const auto living = FileLock::try_lock(options.cache / "locks/1111111111111111");
  const std::string id = build_corpus(options).directory.filename().string();
  EXPECT_EQ(names_in(options.cache),
            (std::set<std::string>{"1111111111111111.partial", "locks", id}));
  // And what its own earlier builder left.
  fs::remove_all(options.cache / id);
  dir.file(concat("cache/", id, ".partial/tokens.bin"), "half");
  EXPECT_TRUE(build_corpus(options).built);
  open_or_build(options).verify();
}

TEST(CorpusBuild, TwoBuildersMakeOneCorpus) {
  const TempDir dir;
  write_texts(dir, 30, 300);
  std::vector<BuildResult> results(4);
  {
    std::vector<std::jthread> builders;
    for (BuildResult& result : results)
      builders.emplace_back([&] { result = build_corpus(options_of(dir)); });
  }
  int built = 0;
  for (const BuildResult& result : results) {
    built += result.built;
    EXPECT_EQ(result.directory, results[0].directory);
  }
  EXPECT_EQ(built, 1);
  Corpus::open(results[0].directory).verify();
}

TEST(CorpusBuild, ProgressReachesTheEndOfEachStage) {
  const TempDir dir;
  write_texts(dir, 20);
  std::map<std::string, std::pair<uint64_t, uint64_t>> last;
  build_corpus(options_of(dir), [&](std::string_view stage, uint64_t done, uint64_t total) {
    EXPECT_LE(done, total) << stage;
    EXPECT_GE(done, last[std::string(stage)].first) << stage;
    last[std::string(stage)] = {done, total};
  });
  for (const char* stage : {"hashing files, bytes", "reading documents, bytes", "encoding, bytes"})
    EXPECT_TRUE(last[stage].first > 0 && last[stage].first == last[stage].second) << stage;
}

}  // namespace
}  // namespace trireme
