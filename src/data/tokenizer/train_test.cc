#include "data/tokenizer/train.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/scan.h"
#include "data/tokenizer/test_text.h"

namespace trireme {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

// The definition, counting everything anew for each merge. Stops at the first token that two
// different merges lead to, where the definition has no more to say: `ends_early`.
Merges naive_merges(const std::vector<std::string>& documents, size_t count, bool& ends_early) {
  std::map<std::vector<std::string>, int64_t> words;
  for (const auto& text : documents)
    for (const char *p = text.data(), *end = p + text.size(), *stop; p < end; p = stop) {
      stop = word_end(WordStyle::gpt2, p, end);
      std::vector<std::string> symbols;
      for (const char* c = p; c < stop; ++c) symbols.push_back(to_alphabet({c, 1}));
      ++words[symbols];
    }
  std::map<std::string, int> ids;
  std::map<std::string, int> order;
  for (int b = 0; b < 256; ++b) order[to_alphabet(std::string(1, static_cast<char>(b)))];
  for (auto& [symbol, unused] : order) ids.emplace(symbol, static_cast<int>(ids.size()));
  Merges merges;
  while (merges.size() < count) {
    std::map<std::pair<std::string, std::string>, int64_t> pairs;
    for (const auto& [symbols, times] : words)
      for (size_t i = 0; i + 1 < symbols.size(); ++i) pairs[{symbols[i], symbols[i + 1]}] += times;
    std::pair<std::string, std::string> best;
    std::tuple<int64_t, int, int> best_key{0, 0, 0};
    for (const auto& [pair, times] : pairs) {
      const std::tuple key{times, -ids.at(pair.first), -ids.at(pair.second)};
      if (best.first.empty() || key > best_key) best = pair, best_key = key;
    }
    if (best.first.empty()) break;
    if (!ids.emplace(best.first + best.second, static_cast<int>(ids.size())).second) {
      ends_early = true;
      break;
    }
    merges.push_back(best);
    std::map<std::vector<std::string>, int64_t> next;
    for (const auto& [symbols, times] : words) {
      std::vector<std::string> merged;
      for (size_t i = 0; i < symbols.size(); ++i) {
        if (i + 1 < symbols.size() && symbols[i] == best.first && symbols[i + 1] == best.second) {
          merged.push_back(best.first + best.second);
          ++i;
        } else {
          merged.push_back(symbols[i]);
        }
      }
      next[merged] += times;
    }
    words = std::move(next);
  }
  return merges;
}

Tokenizer train(const std::vector<std::string>& documents, const BpeTraining& options) {
  const std::vector<std::string_view> views(documents.begin(), documents.end());
  return train_bpe(views, options);
}

Merges merges_of(const Tokenizer& tokenizer) {
  return nlohmann::json::parse(tokenizer.to_json())["model"]["merges"].get<Merges>();
}

std::vector<std::string> some_documents(uint64_t draw) {
  std::vector<std::string> documents;
  for (uint64_t i = 0; i < 20; ++i) documents.push_back(ugly_text(1000 * draw + i, 30, true));
  return documents;
}

TEST(TrainBpe, FindsTheMergesOfTheDefinition) {
  for (uint64_t draw = 0; draw < 15; ++draw) {
    const auto documents = some_documents(draw);
    bool ends_early = false;
    Merges expected = naive_merges(documents, 60, ends_early);
    const auto vocab = static_cast<int32_t>(257 + expected.size());
    Merges found = merges_of(train(documents, {.vocab = vocab, .progress = {}}));
    ASSERT_EQ(found, expected) << "draw " << draw << (ends_early ? ", up to a repeated token" : "");
    ASSERT_GT(found.size(), 10u);
  }
}

TEST(TrainBpe, DependsNeitherOnThreadsNorOnTheOrderOfDocuments) {
  auto documents = some_documents(77);
  const std::string one = train(documents, {.vocab = 500, .progress = {}}).to_json();
  EXPECT_EQ(train(documents, {.vocab = 500, .threads = 3, .progress = {}}).to_json(), one);
  std::reverse(documents.begin(), documents.end());
  EXPECT_EQ(train(documents, {.vocab = 500, .threads = 8, .progress = {}}).to_json(), one);
}

TEST(TrainBpe, MergesNothingThatIsRarerThanAsked) {
  const std::vector<std::string> documents = {"ab ab ab", " cd cd"};
  EXPECT_EQ(merges_of(train(documents, {.vocab = 1000, .min_frequency = 3, .progress = {}})),
            (Merges{{"a", "b"}}));
}

TEST(TrainBpe, GivesSpecialTokensTheFirstIds) {
  const Tokenizer tokenizer =
      train({"aa"}, {.vocab = 259, .special_tokens = {"<a>", "<b>"}, .progress = {}});
  EXPECT_EQ(tokenizer.vocab_size(), 259);
  EXPECT_EQ(tokenizer.id_of("<b>"), 1);
  EXPECT_TRUE(tokenizer.is_special(1));
  EXPECT_EQ(tokenizer.encode("<b>aa"), (std::vector<int32_t>{1, 258}));
}

TEST(TrainBpe, NeedsNoText) {
  const Tokenizer tokenizer = train({}, {.vocab = 1000, .progress = {}});
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("any \xFF")), "any \xFF");
}

TEST(TrainBpe, RefusesAVocabularyWithoutRoomForBytes) {
  EXPECT_THROW(train({"a"}, {.vocab = 256, .progress = {}}), InputError);
  EXPECT_THROW(train({"a"}, {.vocab = -1, .progress = {}}), InputError);
}

}  // namespace
}  // namespace trireme
