#include "data/inspect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/corpus_build.h"
#include "data/test_corpus.h"

namespace trireme {
namespace {

using nlohmann::json;
using testing::TempDir;

class Inspect : public ::testing::Test {
 protected:
  Inspect() {
    for (int i = 0; i < 8; ++i)
      texts[concat("f", i, ".py")] = concat("def f", i, "():\n    return ", i * i, "\n");
    texts["odd.txt"] = "bell \a, escape \x1b[31m, delete \x7f, \u0085 and ä\u20acend";
    for (const auto& [name, text] : texts) dir.file("text/" + name, text);
    CorpusOptions options;
    SourceOptions source;
    source.path = (dir.path / "text").string();
    options.sources = {source};
    options.train_vocab = 260;  // bytes, mostly: a window cuts characters
    options.held_out = 0.3;
    options.cache = dir.path / "cache";
    corpus.emplace(open_or_build(options));
    tokenizer.emplace(Tokenizer::load(corpus->tokenizer_path()));
  }

  TextSampleOptions options_of(Split split, int64_t sequence) const {
    TextSampleOptions options;
    options.sequence = sequence;
    options.split = split;
    return options;
  }

  TempDir dir;
  std::map<std::string, std::string> texts;
  std::optional<Corpus> corpus;
  std::optional<Tokenizer> tokenizer;
};

// The held-out samples, one behind the other, spell every held-out document from front to end. The
// label of a sample's last input is the first input of the next.
TEST_F(Inspect, SegmentsSpellTheDocuments) {
  for (const int64_t sequence : {7, 33, 500}) {
    const TextSamples samples(*corpus, options_of(Split::held_out, sequence));
    std::string text;
    uint64_t ends = 0;
    for (uint64_t index = 0; index < samples.samples_per_epoch(); ++index) {
      const SampleView view = view_sample(*corpus, samples, *tokenizer, index);
      int64_t next = 0;
      for (const SampleSegment& segment : view.segments) {
        EXPECT_EQ(segment.begin, next);
        EXPECT_GT(segment.end, segment.begin);
        next = segment.end;
        text += segment.text;
        ends += segment.ends;
        // Boundaries are the sample's own as well.
        const auto id = [&](int64_t t) { return view.sample.documents[static_cast<size_t>(t)]; };
        EXPECT_EQ(id(segment.begin), id(segment.end - 1));
        EXPECT_TRUE(segment.end == view.place.labels || id(segment.end - 1) != id(segment.end));
      }
      EXPECT_EQ(next, view.place.labels);
    }
    std::string expected;
    for (const DocumentRecord& document : corpus->documents(0, Split::held_out))
      expected += texts[fs::path(corpus->manifest().files[document.file].name).filename()];
    EXPECT_EQ(text, expected);
    EXPECT_EQ(ends, corpus->documents(0, Split::held_out).size());
  }
}

TEST_F(Inspect, ATrainSampleNamesItsDocuments) {
  const TextSamples samples(*corpus, options_of(Split::train, 40));
  for (uint64_t index = 0; index < 2 * samples.samples_per_epoch(); ++index) {
    const SampleView view = view_sample(*corpus, samples, *tokenizer, index);
    for (const SampleSegment& segment : view.segments) {
      const std::string& text = texts[fs::path(segment.file->name).filename()];
      EXPECT_NE(text.find(segment.text), std::string::npos);
      EXPECT_TRUE(segment.first_token > 0 || text.starts_with(segment.text));
      EXPECT_TRUE(!segment.ends || text.ends_with(segment.text));
    }
  }
}

TEST_F(Inspect, TextHasALineAtEachBoundary) {
  const TextSamples samples(*corpus, options_of(Split::train, 120));
  const SampleView view = view_sample(*corpus, samples, *tokenizer, 0);
  const std::string plain = sample_text(view, false), colored = sample_text(view, true);
  size_t rules = 0;
  for (size_t at = 0; (at = plain.find("──── ", at)) != std::string::npos; ++at) ++rules;
  size_t ends = 0;
  for (const SampleSegment& segment : view.segments) ends += segment.ends;
  const bool padded = view.place.labels < 120;
  EXPECT_EQ(rules, 1 + view.segments.size() + ends + padded);
  EXPECT_EQ(plain.find('\033'), std::string::npos);
  EXPECT_NE(colored.find("\033[36m──── sample 0 of train"), std::string::npos);
}

// What a text holds must not reach the terminal as a command, wherever it comes from.
TEST_F(Inspect, ControlCharactersAreShown) {
  std::string all;
  for (const Split split : {Split::train, Split::held_out}) {
    const TextSamples samples(*corpus, options_of(split, 60));
    for (uint64_t index = 0; index < samples.samples_per_epoch(); ++index)
      all += sample_text(view_sample(*corpus, samples, *tokenizer, index), false);
  }
  for (const char c : all)
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') << int{c};
  EXPECT_EQ(all.find('\x7f'), std::string::npos);
  EXPECT_EQ(all.find("\u0085"), std::string::npos);
  EXPECT_NE(all.find("␇"), std::string::npos);
  EXPECT_NE(all.find("␛[31m"), std::string::npos);
}

TEST_F(Inspect, JsonHoldsTheSample) {
  const TextSamples samples(*corpus, options_of(Split::held_out, 30));
  for (uint64_t index = 0; index < samples.samples_per_epoch(); ++index) {
    const SampleView view = view_sample(*corpus, samples, *tokenizer, index);
    const json object = json::parse(sample_json(view, true));
    EXPECT_EQ(json::parse(sample_json(view, false)), object);
    EXPECT_EQ(std::ranges::count(sample_json(view, false), '\n'), 1);
    EXPECT_EQ(object["tokens"], json(view.sample.tokens));
    EXPECT_EQ(object["labels"], json(view.sample.labels));
    EXPECT_EQ(object["positions"], json(view.sample.positions));
    EXPECT_EQ(object["documents"], json(view.sample.documents));
    EXPECT_EQ(object["split"], "held_out");
    EXPECT_EQ(object["segments"].size(), view.segments.size());
  }
  EXPECT_THROW(view_sample(*corpus, samples, *tokenizer, samples.samples_per_epoch()), InputError);
}

TEST_F(Inspect, TheCorpusSaysWhatItHolds) {
  const json object = json::parse(corpus_json(*corpus));
  EXPECT_EQ(object["train"]["documents"].get<int>() + object["held_out"]["documents"].get<int>(),
            9);
  EXPECT_EQ(object["sources"][0]["files"], 9);
  EXPECT_EQ(object["sources"][0]["licence"], nullptr);
  EXPECT_EQ(object["vocab"], corpus->vocab());
  const std::string text = corpus_text(*corpus);
  EXPECT_NE(text.find("licence  not known"), std::string::npos);
  EXPECT_NE(text.find((dir.path / "text").string()), std::string::npos);
}

}  // namespace
}  // namespace trireme
