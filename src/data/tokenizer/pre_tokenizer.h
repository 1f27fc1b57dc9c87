// How text is cut into words before the model: a chain of steps, each of which cuts what the one
// before left, and may change it.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "data/tokenizer/pattern.h"
#include "data/tokenizer/scan.h"

namespace trireme {

// What becomes of the matches that a Cut finds, and of the text between them.
enum class CutBehavior {
  removed,               // matches vanish
  isolated,              // each is a piece
  contiguous,            // neighbouring matches are one piece
  merged_with_previous,  // a match ends the piece before it
  merged_with_next,      // a match begins the piece after it
};

// Characters that each are a match.
enum class CharacterClass { number, space, punctuation };
struct OneCharacter {
  char32_t code;
};

struct Cut {
  std::variant<Pattern, CharacterClass, OneCharacter> at;
  CutBehavior behavior = CutBehavior::isolated;
  bool invert = false;  // matches are what lies between
};
struct CutWords {
  WordStyle style;
};
struct PrefixSpace {};   // put a space before text that does not begin with one
struct SpellBytes {};    // each byte as a character of GPT-2's alphabet
struct MetaspaceMarks {  // spaces become `mark`, and one is put before the text
  std::string mark;
  enum class Where { always, first, never } prepend;
};

using PreTokenizerStep = std::variant<Cut, CutWords, PrefixSpace, SpellBytes, MetaspaceMarks>;

// Takes the words one by one; they live until it returns.
struct WordSink {
  void* object;
  void (*take)(void* object, std::string_view word);
  void operator()(std::string_view word) const { take(object, word); }
};

struct PreTokenizerScratch {
  struct Span {
    size_t begin, end;
    bool match;
  };
  struct Level {
    std::vector<Span> spans;
    std::string text, prepared;
  };
  PatternScratch pattern;
  std::deque<Level> levels;
};

// Immutable, any thread.
class PreTokenizer {
 public:
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps = {}) : steps_(std::move(steps)) {}
  // `at_start`: the text is the beginning of the whole.
  void operator()(std::string_view text, bool at_start, PreTokenizerScratch& scratch,
                  WordSink sink) const;

 private:
  struct Call;
  std::vector<PreTokenizerStep> steps_;
};

}  // namespace trireme
