#include "data/tokenizer/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "data/tokenizer/test_text.h"

namespace trireme {
namespace {

// A vocabulary of `alphabet`, and of `count` merges of two earlier tokens, drawn at random. Tokens
// of many lengths, and several merges that lead to the same one.
struct Model {
  std::vector<std::string> tokens;
  std::vector<Bpe::Pair> merges;

  Model(std::vector<std::string> alphabet, size_t count, uint64_t draw)
      : tokens(std::move(alphabet)) {
    std::map<std::string, int32_t> ids;
    for (size_t i = 0; i < tokens.size(); ++i) ids[tokens[i]] = static_cast<int32_t>(i);
    const RandomStream random(3, "merges", draw);
    for (uint64_t i = 0; i < count; ++i) {
      const auto left = static_cast<int32_t>(random.below(2 * i, tokens.size()));
      const auto right = static_cast<int32_t>(random.below(2 * i + 1, tokens.size()));
      const std::string both = tokens[left] + tokens[right];
      if (both.size() > 24) continue;
      const auto [at, fresh] = ids.emplace(both, static_cast<int32_t>(tokens.size()));
      if (fresh) tokens.push_back(both);
      merges.push_back({left, right, at->second});
    }
  }

  Bpe bpe(const Bpe::Options& options) const {
    std::vector<std::optional<std::string_view>> texts(tokens.begin(), tokens.end());
    return Bpe(texts, merges, options);
  }

  // The definition: again and again the pair that was listed first, leftmost.
  std::vector<int32_t> naive(std::vector<int32_t> ids) const {
    std::map<std::pair<int32_t, int32_t>, std::pair<size_t, int32_t>> ranks;
    for (size_t i = 0; i < merges.size(); ++i)
      ranks[{merges[i].left, merges[i].right}] = {i, merges[i].id};
    for (;;) {
      size_t best_rank = SIZE_MAX, best = 0;
      for (size_t i = 0; i + 1 < ids.size(); ++i) {
        const auto found = ranks.find({ids[i], ids[i + 1]});
        if (found != ranks.end() && found->second.first < best_rank)
          best_rank = found->second.first, best = i;
      }
      if (best_rank == SIZE_MAX) return ids;
      ids[best] = ranks.at({ids[best], ids[best + 1]}).second;
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
  }
};

std::vector<std::string> all_bytes() {
  std::vector<std::string> bytes;
  for (int b = 0; b < 256; ++b) bytes.emplace_back(1, static_cast<char>(b));
  return bytes;
}

// Words over a few letters, so that merges are frequent; lengths around every border in the code:
// 15 and 31 bytes (caches), 48 symbols (the heap).
std::string word(uint64_t draw, std::string_view letters) {
  const RandomStream random(5, "word", draw);
  const size_t lengths[] = {1,  2,  3,  7,  8,  9,  14, 15, 16, 17,
                            23, 30, 31, 32, 33, 47, 48, 49, 50, 200};
  std::string text(lengths[random.below(0, std::size(lengths))], ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = letters[random.below(i + 1, letters.size())];
  return text;
}

TEST(Bpe, MergesBytesAsTheDefinitionDoes) {
  for (uint64_t draw = 0; draw < 20; ++draw) {
    // Few letters among the first tokens make long tokens likely.
    std::vector<std::string> alphabet = {"a", "b", "c"};
    Model model(alphabet, 60, draw);
    for (const auto& b : all_bytes())
      if (b != "a" && b != "b" && b != "c") model.tokens.push_back(b);
    const Bpe bpe = model.bpe({.unknown = {}});
    BpeScratch scratch;
    for (uint64_t i = 0; i < 300; ++i) {
      const std::string text =
          word(i / 2, draw % 2 ? "abcx" : "ab");  // each word twice: once cached
      std::vector<int32_t> ids, symbols;
      bpe.encode(text, scratch, ids);
      for (const char c : text)
        symbols.push_back(static_cast<int32_t>(
            std::find(model.tokens.begin(), model.tokens.end(), std::string(1, c)) -
            model.tokens.begin()));
      ASSERT_EQ(ids, model.naive(symbols)) << "draw " << draw << ", word " << text;
    }
  }
}

// Characters of one to four bytes; some have no token and become bytes, or the unknown token.
TEST(Bpe, MergesCharactersAsTheDefinitionDoes) {
  const std::vector<std::string> known = {"<unk>", "a", "\u00E9", "\u2581", "\U0001F600"};
  const std::vector<std::string> letters = {"a",          "a",      "\u00E9", "\u2581",
                                            "\U0001F600", "\u4E2D", "x",      "\xFF"};
  for (const bool fallback : {false, true}) {
    for (const bool fuse : {false, true}) {
      for (uint64_t draw = 0; draw < 10; ++draw) {
        Model model({known.begin() + 1, known.end()}, 40, draw);
        const auto unknown = static_cast<int32_t>(model.tokens.size());
        model.tokens.push_back("<unk>");
        const auto first_byte = static_cast<int32_t>(model.tokens.size());
        char name[8];
        if (fallback)
          for (int b = 0; b < 256; ++b) {
            std::snprintf(name, sizeof name, "<0x%02X>", b);
            model.tokens.emplace_back(name);
          }
        const Bpe bpe = model.bpe(
            {.bytes = false, .byte_fallback = fallback, .unknown = unknown, .fuse_unknown = fuse});
        BpeScratch scratch;
        for (uint64_t i = 0; i < 200; ++i) {
          const RandomStream random(6, "characters", i / 2 + 1000 * draw);
          std::string text;
          std::vector<int32_t> symbols;
          const size_t length = 1 + random.below(0, 60);
          bool last_unknown = false;
          for (size_t k = 0; k < length; ++k) {
            const std::string& letter = letters[random.below(k + 1, letters.size())];
            text += letter;
            const auto at = std::find(known.begin() + 1, known.end(), letter);
            const bool is_known = at != known.end();
            if (is_known) symbols.push_back(static_cast<int32_t>(at - known.begin()) - 1);
            else if (fallback)
              for (const char c : letter) symbols.push_back(first_byte + static_cast<uint8_t>(c));
            else if (!fuse || !last_unknown) symbols.push_back(unknown);
            last_unknown = !is_known;
          }
          std::vector<int32_t> ids;
          bpe.encode(text, scratch, ids);
          ASSERT_EQ(ids, model.naive(symbols))
              << "fallback " << fallback << ", fuse " << fuse << ", draw " << draw << ": " << text;
        }
      }
    }
  }
}

// Zero bytes are also what fills up the key of a word in the caches.
TEST(Bpe, TellsWordsOfZerosApart) {
  const auto tokens = all_bytes();
  const std::vector<std::optional<std::string_view>> texts(tokens.begin(), tokens.end());
  const Bpe bpe(texts, {}, {.unknown = {}});
  BpeScratch scratch;
  for (size_t length = 1; length < 40; ++length) {
    std::vector<int32_t> ids;
    bpe.encode(std::string(length, '\0'), scratch, ids);
    EXPECT_EQ(ids, std::vector<int32_t>(length, 0));
  }
}

TEST(Bpe, AWholeWordNeedsNoMergesIfTheyAreIgnored) {
  auto tokens = all_bytes();
  const std::string longer(40, 'b');
  tokens.insert(tokens.end(), {"ab", "abcabcabcabcabcabc", longer});
  std::vector<std::optional<std::string_view>> texts(tokens.begin(), tokens.end());
  const Bpe bpe(texts, {}, {.ignore_merges = true, .unknown = {}});
  BpeScratch scratch;
  for (int i = 0; i < 2; ++i)
    for (const int32_t id : {256, 257, 258}) {
      std::vector<int32_t> ids;
      bpe.encode(tokens[id], scratch, ids);
      EXPECT_EQ(ids, std::vector<int32_t>{id});
    }
  std::vector<int32_t> ids;
  bpe.encode("abc", scratch, ids);
  EXPECT_EQ(ids, (std::vector<int32_t>{'a', 'b', 'c'}));
}

// Quadratic time would take hours.
TEST(Bpe, AWordOfMegabytesTakesNoLongerThanItsLength) {
  auto tokens = all_bytes();
  std::vector<Bpe::Pair> merges;
  for (int i = 0; i < 10; ++i) {
    const int32_t half = i == 0 ? 'a' : 255 + i;
    merges.push_back({half, half, 256 + i});
    tokens.push_back(tokens[half] + tokens[half]);
  }
  std::vector<std::optional<std::string_view>> texts(tokens.begin(), tokens.end());
  const Bpe bpe(texts, merges, {.unknown = {}});
  BpeScratch scratch;
  std::vector<int32_t> ids;
  bpe.encode(std::string(2 << 20, 'a'), scratch, ids);
  EXPECT_EQ(ids, std::vector<int32_t>(2 << 10, 265));
}

}  // namespace
}  // namespace trireme
