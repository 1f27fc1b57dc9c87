#include "data/tokenizer/pre_tokenizer.h"

#include "base/error.h"
#include "data/tokenizer/byte_alphabet.h"
#include "data/tokenizer/unicode.h"

namespace trireme {
namespace {

using Span = PreTokenizerScratch::Span;
using unicode::Kind;

bool is_in(CharacterClass characters, char32_t code) {
  switch (characters) {
    case CharacterClass::number:
      return unicode::kind(code) == Kind::number;
    case CharacterClass::space:
      return unicode::kind(code) == Kind::space;
    case CharacterClass::punctuation:
      return unicode::is_punctuation(code);
  }
  TRIREME_ASSERT(false, "no such class");
}

// Calls found(begin, end) for each match, from left to right.
template <class Found>
void each_match(const Pattern& pattern, std::string_view text, PreTokenizerScratch& scratch,
                PreTokenizerScratch::Level& level, Found found) {
  const std::string_view prepared = pattern.prepare(text, level.prepared);
  size_t begin, end;
  for (size_t from = 0; from < text.size(); from = end) {
    if (!pattern.find(prepared, from, scratch.pattern, begin, end)) break;
    found(begin, end);
  }
}

template <class IsMatch, class Found>
void each_character(std::string_view text, IsMatch is_match, Found found) {
  const char *p = text.data(), *const end = p + text.size();
  while (p < end) {
    const auto [code, bytes] = unicode::decode(p, end);
    const size_t at = static_cast<size_t>(p - text.data());
    if (is_match(code)) found(at, at + bytes);
    p += bytes;
  }
}

// The text as matches and what lies between, without gaps and empty spans.
void find_spans(const Cut& cut, std::string_view text, PreTokenizerScratch& scratch,
                PreTokenizerScratch::Level& level) {
  auto& spans = level.spans;
  spans.clear();
  size_t done = 0;
  const auto found = [&](size_t begin, size_t end) {
    if (done < begin) spans.push_back({done, begin, cut.invert});
    spans.push_back({begin, end, !cut.invert});
    done = end;
  };
  if (const auto* pattern = std::get_if<Pattern>(&cut.at)) {
    each_match(*pattern, text, scratch, level, found);
  } else if (const auto* characters = std::get_if<CharacterClass>(&cut.at)) {
    each_character(text, [&](char32_t c) { return is_in(*characters, c); }, found);
  } else {
    const char32_t code = std::get<OneCharacter>(cut.at).code;
    each_character(text, [&](char32_t c) { return c == code; }, found);
  }
  if (done < text.size()) spans.push_back({done, text.size(), cut.invert});
}

// Of neighbouring matches only the one next to other text joins it.
void merge_spans(std::vector<Span>& spans, CutBehavior behavior) {
  size_t out = 0;
  bool last_match = false;
  const auto merge_forward = [&](auto joins) {
    for (const Span span : spans) {
      if (out > 0 && joins(span)) spans[out - 1].end = span.end;
      else spans[out++] = span;
      last_match = span.match;
    }
    spans.resize(out);
  };
  switch (behavior) {
    case CutBehavior::isolated:
      return;
    case CutBehavior::removed:
      std::erase_if(spans, [](const Span& s) { return s.match; });
      return;
    case CutBehavior::contiguous:
      return merge_forward([&](const Span& span) { return span.match == last_match; });
    case CutBehavior::merged_with_previous:
      return merge_forward([&](const Span& span) { return span.match && !last_match; });
    case CutBehavior::merged_with_next:
      out = spans.size();
      for (size_t i = spans.size(); i-- > 0;) {
        const Span span = spans[i];
        if (out < spans.size() && span.match && !last_match) spans[out].begin = span.begin;
        else spans[--out] = span;
        last_match = span.match;
      }
      spans.erase(spans.begin(), spans.begin() + static_cast<ptrdiff_t>(out));
  }
}

}  // namespace

// One walk through the chain: step `level` on `text`, then the steps after it on each piece.
struct PreTokenizer::Call {
  const std::vector<PreTokenizerStep>& steps;
  PreTokenizerScratch& scratch;
  WordSink sink;

  void run(size_t level, std::string_view text, bool at_start) {
    if (text.empty()) return;
    if (level == steps.size()) return sink(text);
    std::visit([&](const auto& step) { apply(step, level, text, at_start); }, steps[level]);
  }

  void apply(const CutWords& step, size_t level, std::string_view text, bool at_start) {
    const bool last = level + 1 == steps.size();
    const char *p = text.data(), *const end = p + text.size();
    while (p < end) {
      const char* const stop = word_end(step.style, p, end);
      const std::string_view word(p, static_cast<size_t>(stop - p));
      if (last) sink(word);
      else run(level + 1, word, at_start && p == text.data());
      p = stop;
    }
  }

  void apply(const Cut& cut, size_t level, std::string_view text, bool at_start) {
    auto& spans = scratch.levels[level].spans;
    find_spans(cut, text, scratch, scratch.levels[level]);
    merge_spans(spans, cut.behavior);
    for (const auto [begin, end, match] : spans)
      run(level + 1, text.substr(begin, end - begin), at_start && begin == 0);
  }

  void apply(const PrefixSpace&, size_t level, std::string_view text, bool at_start) {
    if (text.starts_with(' ')) return run(level + 1, text, at_start);
    auto& copy = scratch.levels[level].text;
    copy = ' ';
    copy += text;
    run(level + 1, copy, at_start);
  }

  void apply(const SpellBytes&, size_t level, std::string_view text, bool at_start) {
    auto& copy = scratch.levels[level].text;
    copy = to_alphabet(text);
    run(level + 1, copy, at_start);
  }

  void apply(const MetaspaceMarks& step, size_t level, std::string_view text, bool at_start) {
    auto& copy = scratch.levels[level].text;
    copy.clear();
    using Where = MetaspaceMarks::Where;
    const bool marked = text.starts_with(' ') || text.starts_with(step.mark);
    if (!marked && (step.prepend == Where::always || (step.prepend == Where::first && at_start)))
      copy = step.mark;
    for (size_t from = 0; from < text.size();) {
      const size_t space = std::min(text.find(' ', from), text.size());
      copy.append(text, from, space - from);
      if (space < text.size()) copy += step.mark;
      from = space + 1;
    }
    run(level + 1, copy, at_start);
  }
};

void PreTokenizer::operator()(std::string_view text, bool at_start, PreTokenizerScratch& scratch,
                              WordSink sink) const {
  if (scratch.levels.size() < steps_.size()) scratch.levels.resize(steps_.size());
  Call{steps_, scratch, sink}.run(0, text, at_start);
}

}  // namespace trireme
