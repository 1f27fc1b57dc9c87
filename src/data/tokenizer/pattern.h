// What a tokenizer.json searches text for: a literal, or a regular expression in Oniguruma's
// language, which `tokenizers` uses.
//
// Expressions are rewritten for PCRE2, with the classes spelled out where the two languages differ;
// what has no equal there is refused by name. Characters whose category PCRE2's Unicode does not
// know are replaced by older ones of the same kind before matching, bytes that are no character by
// U+0001: the length in bytes stays.
//
// Threads: immutable, any thread; each thread brings a PatternScratch.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;
struct pcre2_real_match_data_8;

namespace trireme {

// The expression in PCRE2's language. InputError names what is not supported and where it stands;
// `what` is what the message calls the expression.
std::string to_pcre2(std::string_view oniguruma, std::string_view what);

// Whether new characters of its kind are replaced by this one before matching.
bool is_stand_in(char32_t code);

class PatternScratch {
 public:
  PatternScratch();
  ~PatternScratch();
  PatternScratch(const PatternScratch&) = delete;
  PatternScratch& operator=(const PatternScratch&) = delete;

 private:
  friend class Pattern;
  pcre2_real_match_data_8* match_;
};

class Pattern {
 public:
  static Pattern literal(std::string text);
  static Pattern regex(std::string_view oniguruma, std::string_view what);
  Pattern(Pattern&&) noexcept;
  ~Pattern();

  // What find() searches: `text`, or its copy in `copy` where characters had to be replaced. For a
  // literal always `text`.
  std::string_view prepare(std::string_view text, std::string& copy) const;

  // The first match at or after `from`; false if there is none. Looks behind `from` if the
  // expression does. RunError if the expression exceeds PCRE2's limits on this text.
  bool find(std::string_view prepared, size_t from, PatternScratch& scratch, size_t& begin,
            size_t& end) const;

 private:
  Pattern() = default;
  std::string text_;  // the literal, or the expression as given
  pcre2_real_code_8* code_ = nullptr;
};

}  // namespace trireme
