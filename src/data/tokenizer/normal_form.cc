// Unicode normal forms and lower case. The algorithms: Unicode Standard Annex 15; Hangul: the
// standard's section 3.12.

#include <algorithm>
#include <span>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/unicode.h"
#include "data/tokenizer/unicode_tables.h"

namespace trireme::unicode {
namespace {

// Hangul syllables are composed of a leading consonant, a vowel and perhaps a trailing consonant.
constexpr char32_t kSyllables = 0xAC00, kLeads = 0x1100, kVowels = 0x1161, kTrails = 0x11A7;
constexpr uint32_t kLeadCount = 19, kVowelCount = 21, kTrailCount = 28,
                   kSyllableCount = kLeadCount * kVowelCount * kTrailCount;

class Forms {
 public:
  Forms() {
    const std::span numbers(decompositions, decompositions_count);
    for (size_t i = 0; i < numbers.size();) {
      const uint32_t header = numbers[i], code = header & 0x1FFFFF, length = header >> 24;
      steps_.emplace(code, Step{(header >> 21 & 1) != 0, numbers.subspan(i + 1, length)});
      if (header >> 22 & 1) composed_.emplace(key(numbers[i + 1], numbers[i + 2]), code);
      i += 1 + length;
    }
    for (const uint32_t n : std::span(unicode::combining_classes, combining_classes_count))
      classes_.emplace(n >> 8, static_cast<uint8_t>(n));
    mark_active();
  }

  // In NFC such a character stays what it is, whatever follows or precedes it, unless a character
  // that is not inert follows.
  bool is_inert(char32_t code) const {
    return code < 0x300 || code == kNoCharacter || !active_[code];
  }

  uint8_t combining_class(char32_t code) const {
    if (code < 0x300) return 0;
    const auto found = classes_.find(code);
    return found == classes_.end() ? 0 : found->second;
  }

  void decompose(char32_t code, bool compatibility, std::vector<char32_t>& out) const {
    if (code < 0x80) return out.push_back(code);
    if (const uint32_t s = code - kSyllables; s < kSyllableCount) {
      out.push_back(kLeads + s / (kVowelCount * kTrailCount));
      out.push_back(kVowels + s / kTrailCount % kVowelCount);
      if (s % kTrailCount) out.push_back(kTrails + s % kTrailCount);
      return;
    }
    const auto found = steps_.find(code);
    if (found == steps_.end() || (found->second.compatibility && !compatibility))
      return out.push_back(code);
    for (const uint32_t part : found->second.to) decompose(part, compatibility, out);
  }

  // 0: these two do not compose.
  char32_t compose(char32_t a, char32_t b) const {
    if (a - kLeads < kLeadCount && b - kVowels < kVowelCount)
      return kSyllables + ((a - kLeads) * kVowelCount + (b - kVowels)) * kTrailCount;
    if (const uint32_t s = a - kSyllables; s < kSyllableCount && s % kTrailCount == 0)
      if (b > kTrails && b < kTrails + kTrailCount) return a + (b - kTrails);
    const auto found = composed_.find(key(a, b));
    return found == composed_.end() ? 0 : found->second;
  }

 private:
  struct Step {
    bool compatibility;
    std::span<const uint32_t> to;
  };
  void mark_active() {
    for (const auto& [code, combining] : classes_) active_[code] = true;
    for (const auto& [code, step] : steps_) {
      const auto& to = step.to;
      const bool stays = to.size() == 2 && !step.compatibility && compose(to[0], to[1]) == code;
      if (!step.compatibility && !stays) active_[code] = true;
    }
    for (const auto& [pair, code] : composed_) active_[pair & 0xFFFFFFFF] = true;
    for (uint32_t i = 0; i < kVowelCount; ++i) active_[kVowels + i] = true;
    for (uint32_t i = 1; i < kTrailCount; ++i) active_[kTrails + i] = true;
  }
  static uint64_t key(char32_t a, char32_t b) { return static_cast<uint64_t>(a) << 32 | b; }

  std::unordered_map<char32_t, Step> steps_;
  std::unordered_map<uint64_t, char32_t> composed_;
  std::unordered_map<char32_t, uint8_t> classes_;
  std::vector<bool> active_ = std::vector<bool>(0x110000);
};

const Forms& forms() {
  static const Forms tables;
  return tables;
}

// Marks of different classes in ascending order, those of one class as they came.
void reorder(std::vector<char32_t>& codes) {
  const auto by_class = [&](char32_t a, char32_t b) {
    return forms().combining_class(a) < forms().combining_class(b);
  };
  for (size_t i = 0; i < codes.size();) {
    if (forms().combining_class(codes[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < codes.size() && forms().combining_class(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + i, codes.begin() + end, by_class);
    i = end;
  }
}

void compose(std::vector<char32_t>& codes) {
  size_t out = 0, starter = SIZE_MAX;
  int last_class = -1;  // of the character before; -1 directly after the starter
  for (const char32_t code : codes) {
    const int now = forms().combining_class(code);
    if (starter != SIZE_MAX && last_class < now) {
      if (const char32_t both = forms().compose(codes[starter], code)) {
        codes[starter] = both;
        continue;
      }
    }
    if (now == 0) starter = out, last_class = -1;
    else last_class = now;
    codes[out++] = code;
  }
  codes.resize(out);
}

// The text, where a stretch of characters that may change in NFC is replaced. Most text has none.
std::string compose_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<char32_t> codes;
  const char *p = text.data(), *const end = p + text.size();
  const char *copied = p, *before = nullptr;  // `before`: the character in front of p, if any
  while (p < end) {
    const Decoded now = decode(p, end);
    if (forms().is_inert(now.code)) {
      before = now.code == kNoCharacter ? nullptr : p;
      p += now.bytes;
      continue;
    }
    // Its composition may take in the character before, which itself composes with none before it.
    const char* const from = before ? before : p;
    out.append(copied, from);
    if (before) forms().decompose(decode(before, end).code, false, codes);
    while (p < end) {
      const Decoded next = decode(p, end);
      if (forms().is_inert(next.code)) break;
      forms().decompose(next.code, false, codes);
      p += next.bytes;
    }
    reorder(codes);
    compose(codes);
    for (const char32_t code : codes) append(out, code);
    codes.clear();
    copied = p, before = nullptr;
  }
  return out.append(copied, end);
}

}  // namespace

std::string normalize(std::string_view text, Form form) {
  if (form == Form::nfc) return compose_text(text);
  std::string out;
  out.reserve(text.size());
  std::vector<char32_t> codes;
  const auto flush = [&] {
    reorder(codes);
    if (form == Form::nfkc) compose(codes);
    for (const char32_t code : codes) append(out, code);
    codes.clear();
  };
  const char *p = text.data(), *const end = p + text.size();
  while (p < end) {
    const auto [code, bytes] = decode(p, end);
    if (code < 0x80 || code == kNoCharacter) flush();  // Nothing moves or composes across it.
    if (code == kNoCharacter) out += *p;
    else forms().decompose(code, form != Form::nfd, codes);
    p += bytes;
  }
  flush();
  return out;
}

std::string to_lower(std::string_view text) {
  const std::span runs(lower_cases, lower_cases_count);
  std::string out;
  out.reserve(text.size());
  const char *p = text.data(), *end = p + text.size();
  while (p < end) {
    const auto [code, bytes] = decode(p, end);
    if (code == kNoCharacter) {
      out += *p;
    } else if (code == 0x130) {
      out += "i\xCC\x87";  // the only character that becomes two: i and a dot above
    } else {
      // Runs are ordered by their first code; two that interleave are neighbours.
      size_t low = 0, high = runs.size() / 4;
      while (low < high) {
        const size_t middle = (low + high) / 2;
        if (static_cast<char32_t>(runs[middle * 4]) <= code) low = middle + 1;
        else high = middle;
      }
      char32_t to = code;
      for (size_t i = low; i > 0 && i + 2 > low; --i) {
        const auto run = runs.subspan((i - 1) * 4, 4);
        const int64_t from = code;
        if (from <= run[1] && (from - run[0]) % run[2] == 0) {
          to = static_cast<char32_t>(from + run[3]);
          break;
        }
      }
      append(out, to);
    }
    p += bytes;
  }
  return out;
}

}  // namespace trireme::unicode
