// The trainer keeps the corpus as distinct words with counts, each a list of symbols, and for each
// pair of neighbours its count and the words that it was seen in. A heap gives the most frequent
// pair; an entry whose count has changed since goes back with the new one. Counts of popular pairs
// only fall, so most entries are right when they come up.
//
// Two merges can lead to the same token (ab + c and a + bc). Then pairs of that token may be
// counted again later, and a pair may be merged twice; it counts in its last place. That is how
// `tokenizers` does it, too.

#include "data/tokenizer/train.h"

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <queue>
#include <thread>
#include <unordered_map>

#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/scan.h"

namespace trireme {
namespace {

using WordCounts = std::unordered_map<std::string_view, int64_t>;

void count_words(std::string_view document, WordCounts& counts) {
  const char *p = document.data(), *const end = p + document.size();
  while (p < end) {
    const char* const stop = word_end(WordStyle::gpt2, p, end);
    ++counts[{p, static_cast<size_t>(stop - p)}];
    p = stop;
  }
}

// Sorted by the words' bytes, so that nothing later depends on threads or on the documents' order.
std::vector<std::pair<std::string_view, int64_t>> count_all(
    std::span<const std::string_view> documents, int threads) {
  std::vector<WordCounts> counts(static_cast<size_t>(std::max(threads, 1)));
  std::atomic<size_t> next = 0;
  const auto work = [&](WordCounts& own) {
    for (size_t i = next++; i < documents.size(); i = next++) count_words(documents[i], own);
  };
  {
    std::vector<std::jthread> workers;
    for (size_t t = 1; t < counts.size(); ++t) workers.emplace_back([&, t] { work(counts[t]); });
    work(counts[0]);
  }
  for (size_t t = 1; t < counts.size(); ++t)
    for (const auto& [word, count] : counts[t]) counts[0][word] += count;
  std::vector<std::pair<std::string_view, int64_t>> words(counts[0].begin(), counts[0].end());
  std::sort(words.begin(), words.end());
  return words;
}

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

class Trainer {
 public:
  Trainer(std::span<const std::string_view> documents, const BpeTraining& options)
      : options_(options) {
    for (const auto& token : options.special_tokens) add_token(token);
    std::vector<std::string> alphabet;
    for (int b = 0; b < 256; ++b)
      alphabet.push_back(to_alphabet(std::string(1, static_cast<char>(b))));
    // By code point, which is also the order of their UTF-8.
    std::vector<std::string> sorted = alphabet;
    std::sort(sorted.begin(), sorted.end());
    for (const auto& spelled : sorted) add_token(spelled);
    TRIREME_CHECK(spelled_.size() == options.special_tokens.size() + 256,
                  "tokenizer: special tokens must differ from each other and from single "
                  "characters");
    TRIREME_CHECK(std::cmp_greater_equal(options.vocab, spelled_.size()),
                  "tokenizer: a vocabulary of ", options.vocab, " has no room for ",
                  options.special_tokens.size(),
                  " special tokens and 256 bytes\nnext: ask for at least ", spelled_.size());
    for (int b = 0; b < 256; ++b) byte_ids_[b] = ids_.at(alphabet[b]);
    for (const auto& [word, count] : count_all(documents, options.threads)) {
      word_begins_.push_back(symbols_.size());
      word_sizes_.push_back(static_cast<uint32_t>(word.size()));
      word_counts_.push_back(count);
      for (const char c : word) symbols_.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    }
  }

  void run() {
    const auto wanted = static_cast<uint64_t>(options_.vocab);
    count_pairs();
    queue_fresh();
    while (std::cmp_less(ids_.size(), options_.vocab) && !queue_.empty()) {
      Candidate top = std::move(const_cast<Candidate&>(queue_.top()));
      queue_.pop();
      if (const int64_t count = pairs_.at(pair_key(top.left, top.right)).count;
          top.count != count) {
        top.count = count;
        queue_.push(std::move(top));
        continue;
      }
      if (top.count < 1 || top.count < options_.min_frequency) break;
      const int32_t id = add_token(spelled_[top.left] + spelled_[top.right]);
      merges_.push_back({top.left, top.right});
      for (const uint32_t word : top.words) merge_in(word, top.left, top.right, id);
      queue_fresh();
      if (options_.progress && merges_.size() % 64 == 0) options_.progress(ids_.size(), wanted);
    }
    if (options_.progress) options_.progress(wanted, wanted);
  }

  std::string to_json() const {
    using json = nlohmann::ordered_json;
    const json byte_level = {{"type", "ByteLevel"},
                             {"add_prefix_space", false},
                             {"trim_offsets", true},
                             {"use_regex", true}};
    json added = json::array(), vocab = json::object(), merges = json::array();
    for (size_t i = 0; i < options_.special_tokens.size(); ++i)
      added.push_back({{"id", i},
                       {"content", spelled_[i]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    // By id; the object's own insertion would look through all keys for each.
    auto& entries = vocab.get_ref<json::object_t&>();
    for (size_t i = 0; i < spelled_.size(); ++i) entries.emplace_back(spelled_[i], i);
    for (const auto& [left, right] : last_places())
      merges.push_back({spelled_[left], spelled_[right]});
    json document = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}};
    document["added_tokens"] = added;
    document["normalizer"] = nullptr;
    document["pre_tokenizer"] = byte_level;
    document["post_processor"] = nullptr;
    document["decoder"] = byte_level;
    document["model"] = {{"type", "BPE"},
                         {"dropout", nullptr},
                         {"unk_token", nullptr},
                         {"continuing_subword_prefix", nullptr},
                         {"end_of_word_suffix", nullptr},
                         {"fuse_unk", false},
                         {"byte_fallback", false},
                         {"ignore_merges", false},
                         {"vocab", std::move(vocab)},
                         {"merges", std::move(merges)}};
    return document.dump(1);
  }

 private:
  struct Pair {
    int64_t count = 0;
    std::vector<uint32_t> fresh;  // words where it was counted and that no candidate names yet
  };
  struct Candidate {
    int64_t count;
    int32_t left, right;
    std::vector<uint32_t> words;
    // The top of the queue is the most frequent pair, of equal ones that with the smaller ids.
    bool operator<(const Candidate& other) const {
      if (count != other.count) return count < other.count;
      return std::pair(left, right) > std::pair(other.left, other.right);
    }
  };

  int32_t add_token(const std::string& spelled) {
    const auto [at, fresh] = ids_.emplace(spelled, static_cast<int32_t>(spelled_.size()));
    if (fresh) spelled_.push_back(spelled);
    return at->second;
  }

  void count(int32_t left, int32_t right, uint32_t word, int64_t times) {
    const uint64_t key = pair_key(left, right);
    Pair& pair = pairs_[key];
    pair.count += times;
    if (times < 0) return;
    if (pair.fresh.empty()) fresh_pairs_.push_back(key);
    if (pair.fresh.empty() || pair.fresh.back() != word) pair.fresh.push_back(word);
  }

  void count_pairs() {
    for (uint32_t word = 0; word < word_counts_.size(); ++word) {
      const int32_t* const s = symbols_.data() + word_begins_[word];
      for (uint32_t i = 0; i + 1 < word_sizes_[word]; ++i)
        count(s[i], s[i + 1], word, word_counts_[word]);
    }
  }

  void queue_fresh() {
    for (const uint64_t key : fresh_pairs_) {
      Pair& pair = pairs_.at(key);
      if (pair.count > 0)
        queue_.push({pair.count, static_cast<int32_t>(key >> 32), static_cast<int32_t>(key),
                     std::move(pair.fresh)});
      pair.fresh = {};
    }
    fresh_pairs_.clear();
  }

  // Merges left to right in place, and moves the counts of the neighbours to the new symbol.
  void merge_in(uint32_t word, int32_t left, int32_t right, int32_t id) {
    int32_t* const s = symbols_.data() + word_begins_[word];
    const uint32_t size = word_sizes_[word];
    const int64_t times = word_counts_[word];
    uint32_t out = 0;
    for (uint32_t i = 0; i < size; ++i) {
      if (s[i] != left || i + 1 == size || s[i + 1] != right) {
        s[out++] = s[i];
        continue;
      }
      if (out > 0) {
        count(s[out - 1], left, word, -times);
        count(s[out - 1], id, word, times);
      }
      s[out++] = id;
      if (i + 2 < size) {
        count(right, s[i + 2], word, -times);
        count(id, s[i + 2], word, times);
      }
      ++i;
    }
    word_sizes_[word] = out;
  }

  std::vector<std::pair<int32_t, int32_t>> last_places() const {
    std::unordered_map<uint64_t, size_t> last;
    for (size_t i = 0; i < merges_.size(); ++i)
      last[pair_key(merges_[i].first, merges_[i].second)] = i;
    std::vector<std::pair<int32_t, int32_t>> kept;
    for (size_t i = 0; i < merges_.size(); ++i)
      if (last.at(pair_key(merges_[i].first, merges_[i].second)) == i) kept.push_back(merges_[i]);
    return kept;
  }

  const BpeTraining& options_;
  std::vector<std::string> spelled_;  // by id, in GPT-2's alphabet
  std::unordered_map<std::string, int32_t> ids_;
  int32_t byte_ids_[256];

  std::vector<int32_t> symbols_;  // of all words, one after the other
  std::vector<size_t> word_begins_;
  std::vector<uint32_t> word_sizes_;  // in symbols; they shrink
  std::vector<int64_t> word_counts_;

  std::unordered_map<uint64_t, Pair> pairs_;
  std::vector<uint64_t> fresh_pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<std::pair<int32_t, int32_t>> merges_;
};

}  // namespace

Tokenizer train_bpe(std::span<const std::string_view> documents, const BpeTraining& options) {
  Trainer trainer(documents, options);
  trainer.run();
  return Tokenizer::parse(trainer.to_json(), "the trained tokenizer");
}

}  // namespace trireme
