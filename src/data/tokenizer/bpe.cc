#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "data/tokenizer/unicode.h"

namespace trireme {
namespace {

// Below this many symbols, looking at all pairs again and again beats a heap.
constexpr size_t kFewSymbols = 48;

constexpr int kLog2Neighbours = 20;

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

size_t neighbours_place(uint32_t left, uint32_t right) {
  return (static_cast<uint64_t>(left) << 32 | right) * 0x9E3779B97F4A7C15 >> (64 - kLog2Neighbours);
}

}  // namespace

void MergeTable::reserve(size_t merges) {
  const size_t slots = std::bit_ceil(std::max<size_t>(merges, 1) * 2);
  slots_.assign(slots, {});
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = pair_key(left, right);
  size_t at = place(key);
  while (slots_[at].merge.rank != kNone && slots_[at].key != key)
    at = (at + 1) & (slots_.size() - 1);
  slots_[at] = {key, merge};
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (size_t at = place(key);; at = (at + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[at];
    if (slot.key == key || slot.merge.rank == kNone) return slot.merge;
  }
}

Bpe::Bpe(std::span<const std::optional<std::string_view>> tokens, std::span<const Pair> merges,
         const Options& options)
    : options_(options), neighbours_(size_t{1} << kLog2Neighbours) {
  for (size_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id] || tokens[id]->empty()) continue;
    const std::string_view token = *tokens[id];
    const auto first = unicode::decode(token.data(), token.data() + token.size());
    if (token.size() == 1) byte_ids_[static_cast<uint8_t>(token[0])] = static_cast<int32_t>(id);
    else if (!options.bytes && first.bytes == token.size())
      character_ids_.emplace(token, static_cast<int32_t>(id));
    if (options.ignore_merges) whole_words_.emplace(token, static_cast<int32_t>(id));
  }
  if (options.byte_fallback) {
    static constexpr char digits[] = "0123456789ABCDEF";
    std::unordered_map<std::string_view, uint8_t> spelled;
    std::vector<std::string> names(256);
    for (int b = 0; b < 256; ++b) {
      names[b] = {'<', '0', 'x', digits[b >> 4], digits[b & 15], '>'};
      spelled.emplace(names[b], static_cast<uint8_t>(b));
    }
    for (size_t id = 0; id < tokens.size(); ++id)
      if (tokens[id] && spelled.contains(*tokens[id]))
        fallback_ids_[spelled.at(*tokens[id])] = static_cast<int32_t>(id);
  }
  merges_.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto [left, right, id] = merges[i];
    merges_.set(left, right, {static_cast<uint32_t>(i), id});
    if (tokens[id]) remember_neighbours(*tokens[id]);
  }
  if (options.bytes)
    TRIREME_ASSERT(std::count(byte_ids_.begin(), byte_ids_.end(), -1) == 0, "a byte is no token");
}

void Bpe::remember_neighbours(std::string_view token) {
  const char *p = token.data(), *const end = p + token.size();
  std::optional<uint32_t> left;
  while (p < end) {
    const auto [code, bytes] = unicode::decode(p, end);
    const uint32_t now = options_.bytes ? static_cast<uint8_t>(*p) : code;
    if (left) neighbours_[neighbours_place(*left, now)] = true;
    left = now;
    p += options_.bytes ? 1 : bytes;
  }
}

bool Bpe::joined(uint32_t left, uint32_t right) const {
  return neighbours_[neighbours_place(left, right)];
}

void Bpe::encode(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const {
  if (word.empty()) return;
  if (word.size() <= ShortWords::kLongest)
    return encode_cached(scratch.short_words, word, scratch, out);
  if (word.size() <= LongWords::kLongest)
    return encode_cached(scratch.long_words, word, scratch, out);
  if (options_.ignore_merges) {
    const auto whole = whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) return out.push_back(whole->second);
  }
  encode_long(word, scratch, out);
}

template <class Cache>
void Bpe::encode_cached(Cache& cache, std::string_view word, BpeScratch& scratch,
                        std::vector<int32_t>& out) const {
  const WordKey<Cache::kLongest / 8 + 1> key(word);
  auto& entry = cache.entry(key);
  if (key.equals(entry.key)) {
    for (const int32_t id : entry.ids) {
      if (id < 0) break;
      out.push_back(id);
    }
    return;
  }
  const size_t before = out.size();
  const auto whole =
      options_.ignore_merges ? whole_words_.find(std::string(word)) : whole_words_.end();
  if (whole != whole_words_.end()) out.push_back(whole->second);
  else encode_uncached(word, scratch, out);
  const auto ids = std::span(out).subspan(before);
  if (ids.size() <= Cache::kMostIds) Cache::fill(entry, key, ids);
}

// No merge reaches across two neighbours that stand side by side in no token, so a long word can be
// cut there. Both must be known: unknown ones may be fused.
void Bpe::encode_long(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const {
  const auto encode_part = [&](std::string_view part) {
    if (!options_.ignore_merges && part.size() <= ShortWords::kLongest)
      encode_cached(scratch.short_words, part, scratch, out);
    else encode_uncached(part, scratch, out);
  };
  const char *p = word.data(), *const end = p + word.size(), *from = p;
  uint32_t left = 0;
  bool left_known = false;
  while (p < end) {
    uint32_t now = static_cast<uint8_t>(*p), bytes = 1;
    bool known = true;
    if (!options_.bytes) {
      const auto decoded = unicode::decode(p, end);
      now = decoded.code, bytes = decoded.bytes;
      known = character_id({p, bytes}) >= 0;
    }
    if (left_known && known && !joined(left, now)) {
      encode_part({from, static_cast<size_t>(p - from)});
      from = p;
    }
    left = now, left_known = known;
    p += bytes;
  }
  encode_part({from, static_cast<size_t>(end - from)});
}

void Bpe::encode_uncached(std::string_view word, BpeScratch& scratch,
                          std::vector<int32_t>& out) const {
  scratch.ids.clear();
  to_symbols(word, scratch.ids);
  if (scratch.ids.size() <= kFewSymbols) merge_few(scratch.ids);
  else merge_many(scratch);
  out.insert(out.end(), scratch.ids.begin(), scratch.ids.end());
}

int32_t Bpe::character_id(std::string_view character) const {
  if (character.size() == 1) return byte_ids_[static_cast<uint8_t>(character[0])];
  const auto found = character_ids_.find(std::string(character));
  return found == character_ids_.end() ? -1 : found->second;
}

void Bpe::to_symbols(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.bytes) {
    for (const char c : word) ids.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    return;
  }
  std::optional<int32_t> unknown;  // met, and not yet written since the next may fuse with it
  const char *p = word.data(), *const end = p + word.size();
  while (p < end) {
    const std::string_view character(p, unicode::decode(p, end).bytes);
    p += character.size();
    if (const int32_t id = character_id(character); id >= 0) {
      if (unknown) ids.push_back(*unknown);
      unknown.reset();
      ids.push_back(id);
    } else {
      to_fallback(character, unknown, ids);
    }
  }
  if (unknown) ids.push_back(*unknown);
}

void Bpe::to_fallback(std::string_view character, std::optional<int32_t>& unknown,
                      std::vector<int32_t>& ids) const {
  const auto id_of = [&](char c) { return fallback_ids_[static_cast<uint8_t>(c)]; };
  if (std::all_of(character.begin(), character.end(), [&](char c) { return id_of(c) >= 0; })) {
    for (const char c : character) ids.push_back(id_of(c));
  } else if (options_.unknown) {
    if (unknown && !options_.fuse_unknown) ids.push_back(*unknown);
    unknown = options_.unknown;
  }
}

void Bpe::merge_few(std::vector<int32_t>& ids) const {
  MergeTable::Merge merges[kFewSymbols];  // merges[i] is of ids[i] and ids[i + 1]
  size_t count = ids.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].rank == MergeTable::kNone) break;
    ids[best] = merges[best].id;
    --count;
    for (size_t i = best + 1; i < count; ++i) ids[i] = ids[i + 1];
    for (size_t i = best + 1; i + 1 < count; ++i) merges[i] = merges[i + 1];
    if (best > 0) merges[best - 1] = merges_.find(ids[best - 1], ids[best]);
    if (best + 1 < count) merges[best] = merges_.find(ids[best], ids[best + 1]);
  }
  ids.resize(count);
}

// Symbols are a linked list, candidates a heap; a candidate whose symbols have changed is skipped.
void Bpe::merge_many(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  const auto count = static_cast<int32_t>(scratch.ids.size());
  symbols.resize(count);
  heap.clear();
  const auto propose = [&](int32_t place) {
    if (place < 0 || symbols[place].next < 0) return;
    const int32_t left = symbols[place].id, right = symbols[symbols[place].next].id;
    const uint32_t rank = merges_.find(left, right).rank;
    if (rank == MergeTable::kNone) return;
    heap.push_back({rank, place, left, right});
    std::push_heap(heap.begin(), heap.end());
  };
  for (int32_t i = 0; i < count; ++i)
    symbols[i] = {scratch.ids[i], i - 1, i + 1 < count ? i + 1 : -1};
  for (int32_t i = 0; i < count; ++i) propose(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const auto top = heap.back();
    heap.pop_back();
    auto& left = symbols[top.place];
    if (left.id != top.left || left.next < 0 || symbols[left.next].id != top.right) continue;
    auto& right = symbols[left.next];
    left.id = merges_.find(top.left, top.right).id;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[left.next].previous = top.place;
    propose(left.previous);
    propose(top.place);
  }
  scratch.ids.clear();
  for (int32_t i = 0; i >= 0; i = symbols[i].next) scratch.ids.push_back(symbols[i].id);
}

}  // namespace trireme
