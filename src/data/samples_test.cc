#include "data/samples.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "base/random.h"
#include "data/test_corpus.h"

namespace trireme {
namespace {

using testing::HandPart;
using testing::Ids;
using testing::TempDir;
using testing::write_hand_corpus;

constexpr int32_t kEnd = 0;
constexpr int64_t kVocab = 60'000;

// Documents whose tokens are all different, so that a token says where it stands.
std::vector<Ids> numbered(std::vector<size_t> lengths, int32_t first = 1) {
  std::vector<Ids> documents;
  for (const size_t length : lengths) {
    Ids& ids = documents.emplace_back();
    for (size_t i = 0; i < length; ++i) ids.push_back(first++);
  }
  return documents;
}

Ids joined(const std::vector<Ids>& documents) {
  Ids stream;
  for (const Ids& ids : documents) {
    stream.insert(stream.end(), ids.begin(), ids.end());
    stream.push_back(kEnd);
  }
  return stream;
}

TextSampleOptions options_of(int64_t sequence, Split split = Split::train, uint64_t seed = 7) {
  TextSampleOptions options;
  options.sequence = sequence;
  options.seed = seed;
  options.split = split;
  return options;
}

// The rule of the header, written the slow way: the ring is laid out twice, the window is cut, and
// documents are told by walking from its start.
TextSample naive(const Ids& stream, uint64_t start, size_t count,
                 const TextSampleOptions& options) {
  Ids twice = {stream.back()};
  twice.insert(twice.end(), stream.begin(), stream.end());
  twice.insert(twice.end(), stream.begin(), stream.end());
  TextSample sample;
  int32_t document = 0, position = 0;
  for (size_t t = 0; t < static_cast<size_t>(options.sequence); ++t) {
    const int32_t token = t < count ? twice[start + t] : kEnd;
    const bool last = t < count && token == kEnd;
    int32_t label = t < count ? twice[start + t + 1] : -100;
    if (last && options.document_attention) label = -100;
    sample.tokens.push_back(token);
    sample.labels.push_back(label);
    sample.documents.push_back(options.document_attention ? document : 0);
    sample.positions.push_back(options.document_positions ? position : static_cast<int32_t>(t));
    document += last;
    position = last ? 0 : position + 1;
    if (label != -100) ++sample.valid, sample.label_bytes += label == kEnd ? 0 : label + 1;
  }
  return sample;
}

void expect_equal(const TextSample& a, const TextSample& b) {
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.labels, b.labels);
  EXPECT_EQ(a.positions, b.positions);
  EXPECT_EQ(a.documents, b.documents);
  EXPECT_EQ(a.valid, b.valid);
  EXPECT_EQ(a.label_bytes, b.label_bytes);
}

struct Case {
  std::vector<size_t> lengths;
  int64_t sequence;
};

class SamplesOf : public ::testing::TestWithParam<Case> {};

// Documents that end at, before and behind the edges of windows, and some of a single token.
TEST_P(SamplesOf, AreWhatANaiveConstructionCuts) {
  const auto [lengths, sequence] = GetParam();
  const TempDir dir;
  const HandPart part{numbered(lengths), numbered(lengths, 20'000)};
  const Corpus corpus = write_hand_corpus(dir.path / "c", {part}, kVocab, kEnd);
  for (const Split split : {Split::train, Split::held_out})
    for (const int switches : {0, 1, 2, 3}) {
      const Ids stream = joined(split == Split::train ? part.train : part.held_out);
      TextSampleOptions options = options_of(sequence, split);
      options.document_attention = switches & 1;
      options.document_positions = switches & 2;
      const TextSamples samples(corpus, options);
      const size_t windows =
          (stream.size() + static_cast<size_t>(sequence) - 1) / static_cast<size_t>(sequence);
      ASSERT_EQ(samples.samples_per_epoch(), windows);
      for (uint64_t index = 0; index < (split == Split::train ? 3 * windows : windows); ++index) {
        const TextSamples::Place place = samples.place(index);
        const uint64_t from = place.window * static_cast<uint64_t>(sequence);
        ASSERT_EQ(place.labels, static_cast<int64_t>(std::min<uint64_t>(
                                    static_cast<uint64_t>(sequence), stream.size() - from)));
        expect_equal(samples.sample(index),
                     naive(stream, place.start, static_cast<size_t>(place.labels), options));
      }
    }
}

// Whatever is shuffled and shifted, an epoch has each token of the stream as a label once; with
// document attention all but the first of each document.
TEST_P(SamplesOf, EachTokenIsALabelOnceAnEpoch) {
  const auto [lengths, sequence] = GetParam();
  const TempDir dir;
  const HandPart part{numbered(lengths), numbered(lengths, 20'000)};
  const Corpus corpus = write_hand_corpus(dir.path / "c", {part}, kVocab, kEnd);
  for (const Split split : {Split::train, Split::held_out})
    for (const bool attention : {false, true}) {
      Ids expected;
      for (const Ids& ids : split == Split::train ? part.train : part.held_out) {
        expected.insert(expected.end(), ids.begin() + attention, ids.end());
        expected.push_back(kEnd);
      }
      std::sort(expected.begin(), expected.end());
      TextSampleOptions options = options_of(sequence, split);
      options.document_attention = attention;
      const TextSamples samples(corpus, options);
      const uint64_t count = samples.samples_per_epoch();
      for (uint64_t epoch = 0; epoch < (split == Split::train ? 4 : 1); ++epoch) {
        Ids labels;
        std::set<uint64_t> windows;
        for (uint64_t i = 0; i < count; ++i) {
          const uint64_t index = epoch * count + i;
          EXPECT_EQ(samples.place(index).epoch, epoch);
          windows.insert(samples.place(index).window);
          for (const int32_t label : samples.sample(index).labels)
            if (label != kNoLabel) labels.push_back(label);
        }
        std::sort(labels.begin(), labels.end());
        EXPECT_EQ(labels, expected);
        EXPECT_EQ(windows.size(), count);
        EXPECT_EQ(*windows.rbegin(), count - 1);
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Streams, SamplesOf,
                         ::testing::Values(Case{{20}, 4}, Case{{3, 3, 3, 3}, 4}, Case{{4, 4, 4}, 4},
                                           Case{{1, 1, 1, 1, 1}, 3}, Case{{7, 1, 12, 2, 30, 5}, 8},
                                           Case{{100, 3}, 102}, Case{{9}, 1}, Case{{50, 49}, 100},
                                           Case{{2, 13, 1, 1, 40}, 7}));

TEST(Samples, EpochsAreShuffledAndShifted) {
  const TempDir dir;
  const Corpus corpus = write_hand_corpus(dir.path / "c", {{numbered({5000}), {}}}, kVocab, kEnd);
  const TextSamples samples(corpus, options_of(10));
  const uint64_t count = samples.samples_per_epoch();
  int same = 0, in_order = 0;
  for (uint64_t i = 0; i < count; ++i) {
    same += samples.place(i).window == samples.place(count + i).window;
    in_order += samples.place(i).window == i;
  }
  EXPECT_LT(same, 10);  // expected 1 of 501; Poisson puts ten or more at 1e-7
  EXPECT_LT(in_order, 10);
  EXPECT_NE(samples.place(0).start - samples.place(0).window * 10,
            samples.place(count).start - samples.place(count).window * 10);
  const TextSamples other(corpus, options_of(10, Split::train, 8));
  EXPECT_NE(other.place(0).start, samples.place(0).start);
}

// Resuming and changing the batch: whichever way the numbers 0 … n are dealt out, the samples are
// the same, as each is a function of its number.
TEST(Samples, AStoppedRunWithAnotherBatchSeesTheSameSamples) {
  const TempDir dir;
  const Corpus corpus = write_hand_corpus(
      dir.path / "c", {{numbered({30, 7, 19, 42, 3}), numbered({9})}}, kVocab, kEnd);
  const auto run = [&](std::vector<uint64_t> batches) {
    std::multiset<Ids> seen;
    uint64_t consumed = 0;
    for (const uint64_t batch : batches) {
      const TextSamples samples(corpus, options_of(8));  // a new process each time
      for (uint64_t place = 0; place < batch; ++place)
        seen.insert(samples.sample(consumed + place).labels);
      consumed += batch;
    }
    return seen;
  };
  const auto whole = run({4, 4, 4, 4, 4, 4});
  EXPECT_EQ(run({6, 6, 6, 6}), whole);
  EXPECT_EQ(run({4, 2, 1, 1, 16}), whole);
  EXPECT_EQ(run({24}), whole);
}

TEST(Samples, ABlendGivesEachPartItsShareAndItsOwnEpochs) {
  const TempDir dir;
  const Corpus corpus = write_hand_corpus(
      dir.path / "c", {{numbered({40}), {}}, {numbered({90}, 1000), {}}}, kVocab, kEnd);
  TextSampleOptions options = options_of(10);
  options.weights = {0.75, 0.25};
  const TextSamples samples(corpus, options);
  EXPECT_EQ(samples.samples_per_epoch(), 5u + 10u);
  std::map<std::pair<uint64_t, uint64_t>, std::multiset<uint64_t>> windows;  // by part and epoch
  for (uint64_t index = 0; index < 200; ++index) {
    const TextSamples::Place place = samples.place(index);
    windows[{place.part, place.epoch}].insert(place.window);
    for (const int32_t label : samples.sample(index).labels)
      EXPECT_TRUE(label <= 0 || (label >= 1000) == (place.part == 1)) << label;
  }
  // 150 samples are 30 epochs of five windows, 50 are five of ten; each window once.
  EXPECT_EQ(windows.size(), 30u + 5u);
  for (const auto& [key, seen] : windows) {
    EXPECT_EQ(seen.size(), key.first == 0 ? 5u : 10u);
    EXPECT_EQ(std::set(seen.begin(), seen.end()).size(), seen.size());
  }
}

TEST(Samples, HeldOutPartsFollowOneAnother) {
  const TempDir dir;
  const Corpus corpus = write_hand_corpus(dir.path / "c",
                                          {{numbered({40}), numbered({11}, 100)},
                                           {numbered({40}, 1000), {}},
                                           {numbered({40}, 2000), numbered({4, 3}, 3000)}},
                                          kVocab, kEnd);
  TextSampleOptions options = options_of(5, Split::held_out);
  options.weights = {1, 2, 3};
  const TextSamples samples(corpus, options);
  ASSERT_EQ(samples.samples_per_epoch(), 3u + 0u + 2u);
  std::vector<std::pair<uint64_t, uint64_t>> places;
  for (uint64_t index = 0; index < 5; ++index)
    places.emplace_back(samples.place(index).part, samples.place(index).start);
  EXPECT_EQ(places,
            (std::vector<std::pair<uint64_t, uint64_t>>{{0, 0}, {0, 5}, {0, 10}, {2, 0}, {2, 5}}));
  EXPECT_EQ(samples.sample(2).labels, (Ids{110, kEnd, kNoLabel, kNoLabel, kNoLabel}));
  EXPECT_EQ(samples.sample(2).tokens, (Ids{109, 110, kEnd, kEnd, kEnd}));
}

// A model that gives each byte of each label one bit: bits per byte is then 1 by construction.
TEST(Samples, LabelBytesAreTheBytesOfTheLabels) {
  const TempDir dir;
  const std::vector<Ids> documents = numbered({12, 30, 1, 8});
  const Corpus corpus = write_hand_corpus(dir.path / "c", {{documents, documents}}, kVocab, kEnd);
  TextSampleOptions options = options_of(16, Split::held_out);
  options.document_attention = false;
  const TextSamples samples(corpus, options);
  int64_t bytes = 0, expected = 0;
  for (uint64_t i = 0; i < samples.samples_per_epoch(); ++i) bytes += samples.sample(i).label_bytes;
  for (int64_t id = 1; id <= 51; ++id) expected += id + 1;
  EXPECT_EQ(bytes, expected);
}

// The same construction for documents that begin with a token of their own, which may be the one
// that ends them: each document, laid out whole, is followed by the next.
TEST(Samples, DocumentsMayBeginWithAToken) {
  for (const int32_t begin : {59'999, kEnd}) {
    const TempDir dir;
    const std::vector<Ids> documents = numbered({7, 1, 12, 2, 30, 5});
    const Corpus corpus =
        write_hand_corpus(dir.path / "c", {{documents, documents}}, kVocab, kEnd, begin);
    struct Token {
      int32_t id;
      bool begins, ends;
    };
    std::vector<Token> ring;
    for (const Ids& ids : documents) {
      ring.push_back({begin, true, false});
      for (const int32_t id : ids) ring.push_back({id, false, false});
      ring.push_back({kEnd, false, true});
    }
    for (const Split split : {Split::train, Split::held_out})
      for (const bool attention : {false, true}) {
        TextSampleOptions options = options_of(8, split);
        options.document_attention = attention;
        const TextSamples samples(corpus, options);
        for (uint64_t index = 0; index < samples.samples_per_epoch(); ++index) {
          const TextSamples::Place place = samples.place(index);
          const TextSample sample = samples.sample(index);
          int32_t document = 0, position = 0;
          int64_t valid = 0;
          for (int64_t t = 0; t < place.labels; ++t) {
            const auto i = static_cast<size_t>(t);
            const size_t at = (place.start + i) % ring.size();
            const Token& input = ring[(at + ring.size() - 1) % ring.size()];
            const Token& label = ring[at];
            // A window that begins inside a document begins with the token.
            EXPECT_EQ(sample.tokens[i], t == 0 && !input.ends ? begin : input.id);
            EXPECT_EQ(sample.labels[i], attention && label.begins ? kNoLabel : label.id);
            EXPECT_EQ(sample.documents[i], attention ? document : 0);
            EXPECT_EQ(sample.positions[i], position);
            valid += sample.labels[i] != kNoLabel;
            ++position;
            if (input.ends) ++document, position = 0;
          }
          EXPECT_EQ(sample.valid, valid);
        }
      }
  }
}

TEST(Samples, WideIdsAreReadWhole) {
  const TempDir dir;
  const Ids ids = {70'000, 65'535, 65'536, 100'000, 5};
  const Corpus corpus = write_hand_corpus(dir.path / "c", {{{ids}, {ids}}}, 100'001, kEnd);
  const TextSamples samples(corpus, options_of(5, Split::held_out));
  EXPECT_EQ(samples.sample(0).labels, (Ids{kNoLabel, 65'535, 65'536, 100'000, 5}));
}

TEST(Samples, RefuseWhatCannotBeSampled) {
  const TempDir dir;
  const Corpus corpus = write_hand_corpus(dir.path / "c", {{numbered({9}), {}}}, kVocab, kEnd);
  EXPECT_NO_THROW(TextSamples(corpus, options_of(9)));
  EXPECT_THROW(TextSamples(corpus, options_of(10)), InputError);  // 10 tokens, a sample takes 11
  EXPECT_THROW(TextSamples(corpus, options_of(0)), InputError);
  EXPECT_THROW(TextSamples(corpus, options_of(4, Split::held_out)), InputError);
  TextSampleOptions blended = options_of(4);
  blended.weights = {1, 2};
  EXPECT_THROW(TextSamples(corpus, blended), InputError);
}

TEST(Samples, AnIdBeyondTheVocabularyIsDamage) {
  const TempDir dir;
  const Corpus corpus = write_hand_corpus(dir.path / "c", {{{{1, 2, 99}}, {{1}}}}, 50, kEnd);
  const TextSamples samples(corpus, options_of(3));
  for (const uint64_t index : {0, 1})  // the last label of a window is read by no other place of it
    EXPECT_TRUE(samples.place(index).labels < 3 || [&] {
      try {
        samples.sample(index);
        return false;
      } catch (const InputError&) {
        return true;
      }
    }());
}

}  // namespace
}  // namespace trireme
