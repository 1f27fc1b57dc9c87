// From Oniguruma's language (Ruby's dialect, as `tokenizers` uses it) to PCRE2's.
//
// Most of an expression reads the same in both. The differences, and what is done about them:
//   \s \S \d \D \w   PCRE2's are ASCII's or differ by a few characters: spelled out as classes
//   \h \K \R \X …    mean something else, or nothing, in the other: refused
//   ^ $              at line ends in Ruby: (?m:^) (?m:$)
//   {,n}             literal in PCRE2 10.42: {0,n}
//   {n,m}+ {n}?      a quantifier of a quantifier in Ruby: refused
//   [a&&b] [a[b]]    set operations: refused
//   (?i) inside      reaches to the end of the group but splits at |: refused; (?i:…) is the same
//   (?i:…)           folds one to several characters in Oniguruma (ss and U+00DF): refused where it
//                    could

#include <array>
#include <optional>

#include "base/error.h"
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/unicode.h"

namespace trireme {
namespace {

// Insides of classes. White_Space; its complement; Oniguruma's \w.
constexpr std::string_view kSpace =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoSpace =
    R"(\x00-\x08\x0e-\x1f\x21-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";

constexpr std::string_view kProperties[] = {
    "L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk",
    "So", "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cn", "Han"};

class Translation {
 public:
  Translation(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  std::string all() {
    alternatives(false, 0);
    if (!at_end()) refuse("an unmatched ')'");
    return std::move(out_);
  }

 private:
  static constexpr int kDeepest = 50;

  bool at_end() const { return at_ == text_.size(); }
  bool next_is(std::string_view s) const { return text_.substr(at_).starts_with(s); }
  bool skip(std::string_view s) {
    if (!next_is(s)) return false;
    at_ += s.size();
    return true;
  }
  [[noreturn]] void refuse(std::string_view feature) const {
    throw InputError(concat(what_, ": the expression '", text_.substr(0, 300), "' has ", feature,
                            " at byte ", at_, ", which is not supported"));
  }

  char32_t character() {
    const auto [code, bytes] = unicode::decode(text_.data() + at_, text_.data() + text_.size());
    if (code == unicode::kNoCharacter) refuse("a byte that is no UTF-8");
    at_ += bytes;
    return code;
  }

  void put(char32_t code) {
    if (code >= 0x80 && unicode::is_newer_than_14(unicode::properties()[code]))
      refuse("a character newer than Unicode 14");
    char hex[16];
    std::snprintf(hex, sizeof hex, "\\x{%x}", static_cast<unsigned>(code));
    out_ += hex;
  }

  void alternatives(bool any_case, int depth) {
    if (depth > kDeepest) refuse("groups nested deeper than 50");
    while (!at_end() && !next_is(")")) {
      if (skip("|")) {
        out_ += '|';
        last_folded_ = 0;
        continue;
      }
      atom(any_case, depth);
      quantifier();
    }
  }

  void atom(bool any_case, int depth) {
    if (skip("(")) return group(any_case, depth);
    const char32_t before = std::exchange(last_folded_, 0);
    if (next_is("[")) return set();
    if (next_is("\\")) return escape();
    if (skip(".")) return void(out_ += '.');
    if (skip("^")) return void(out_ += "(?m:^)");
    if (skip("$")) return void(out_ += "(?m:$)");
    if (next_is("*") || next_is("+") || next_is("?") || next_is("{"))
      refuse("a quantifier of nothing");
    const char32_t code = character();
    if (any_case) check_folding(before, code);
    put(code);
  }

  // Pairs that fold to or from one character: ß, ﬀ, ﬁ, ﬂ, ﬅ.
  void check_folding(char32_t before, char32_t code) {
    if (code >= 0x80) refuse("a character beyond ASCII without regard to case");
    const auto low = [](char32_t c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; };
    last_folded_ = low(code);
    for (const std::string_view pair : {"ss", "ff", "fi", "fl", "st"})
      if (before == static_cast<char32_t>(pair[0]) &&
          last_folded_ == static_cast<char32_t>(pair[1]))
        refuse(concat("'", pair, "' without regard to case"));
  }

  void group(bool any_case, int depth) {
    static constexpr std::string_view kinds[] = {"?:", "?>", "?=", "?!", "?<=", "?<!", "?i:"};
    std::string_view kind = "?:";  // a capturing group captures for nobody
    if (next_is("?")) {
      kind = {};
      for (const auto k : kinds)
        if (next_is(k)) kind = k;
      if (kind.empty()) refuse(concat("the group '(", text_.substr(at_, 3), "'"));
      at_ += kind.size();
    }
    out_ += '(';
    out_ += kind;
    last_folded_ = 0;
    alternatives(any_case || kind == "?i:", depth + 1);
    if (!skip(")")) refuse("a '(' without its ')'");
    out_ += ')';
    last_folded_ = 0;
  }

  void quantifier() {
    if (skip("*")) out_ += '*';
    else if (skip("+")) out_ += '+';
    else if (skip("?")) out_ += '?';
    else if (next_is("{")) return interval();
    else return;
    if (skip("?")) out_ += '?';
    else if (skip("+")) out_ += '+';
    if (next_is("*") || next_is("+") || next_is("?") || next_is("{"))
      refuse("a quantifier of a quantifier");
    last_folded_ = 0;
  }

  std::optional<int> number() {
    std::optional<int> n;
    while (!at_end() && text_[at_] >= '0' && text_[at_] <= '9') {
      n = n.value_or(0) * 10 + (text_[at_] - '0');
      if (*n > 1000) refuse("a repetition above 1000");
      ++at_;
    }
    return n;
  }

  void interval() {
    skip("{");
    const auto low = number();
    const bool range = skip(",");
    const auto high = range ? number() : low;
    if ((!low && !high) || !skip("}")) refuse("a '{' that is no repetition");
    if (high && low.value_or(0) > *high) refuse("a repetition whose bounds are reversed");
    out_ += concat("{", low.value_or(0));
    if (range) out_ += ',';
    if (range && high) out_ += std::to_string(*high);
    out_ += '}';
    if (range && skip("?")) out_ += '?';
    if (next_is("*") || next_is("+") || next_is("?") || next_is("{"))
      refuse("a quantifier of a quantifier");
    last_folded_ = 0;
  }

  // Outside of a class.
  void escape() {
    if (skip("\\s")) out_ += concat("[", kSpace, "]");
    else if (skip("\\S")) out_ += concat("[^", kSpace, "]");
    else if (skip("\\d")) out_ += "\\p{Nd}";
    else if (skip("\\D")) out_ += "\\P{Nd}";
    else if (skip("\\w")) out_ += concat("[", kWord, "]");
    else if (skip("\\W")) out_ += concat("[^", kWord, "]");
    else if (next_is("\\p") || next_is("\\P")) property();
    else put(escaped_character());
  }

  void property() {
    bool negated = next_is("\\P");
    at_ += 2;
    if (!skip("{")) refuse("a \\p without braces");
    if (skip("^")) negated = !negated;
    const size_t close = text_.find('}', at_);
    if (close == std::string_view::npos) refuse("a \\p without its '}'");
    const std::string_view name = text_.substr(at_, close - at_);
    bool known = false;
    for (const auto p : kProperties) known |= p == name;
    if (!known) refuse(concat("the property '", name.substr(0, 40), "'"));
    at_ = close + 1;
    out_ += concat(negated ? "\\P{" : "\\p{", name, "}");
  }

  char32_t escaped_character() {
    skip("\\");
    if (at_end()) refuse("a '\\' at its end");
    const char c = text_[at_];
    static constexpr std::string_view names = "nrtfvae", codes = "\n\r\t\f\v\a\x1b";
    if (const auto i = names.find(c); i != names.npos) {
      ++at_;
      return static_cast<char32_t>(codes[i]);
    }
    if (skip("x{")) {
      const char32_t code = hex(1, 6);
      if (!skip("}")) refuse("a \\x{ without its '}'");
      return code;
    }
    if (skip("x")) return hex(2, 2);
    if (skip("u")) return hex(4, 4);
    const bool plain = (c >= 0x20 && c < 0x30) || (c >= 0x3A && c < 0x41) ||
                       (c >= 0x5B && c < 0x61) || (c >= 0x7B && c < 0x7F);
    if (!plain) refuse(concat("'\\", c, "'"));
    ++at_;
    return static_cast<char32_t>(c);
  }

  char32_t hex(int least, int most) {
    char32_t code = 0;
    int digits = 0;
    for (; digits < most && !at_end(); ++digits, ++at_) {
      const auto place = std::string_view("0123456789abcdef").find(text_[at_] | 0x20);
      const bool digit = text_[at_] <= '9' ? text_[at_] >= '0' : place != std::string_view::npos;
      if (!digit) break;
      code = code * 16 + (text_[at_] <= '9' ? text_[at_] - '0' : static_cast<int>(place));
    }
    if (digits < least || code >= 0x110000 || (code >= 0xD800 && code < 0xE000))
      refuse("a code that is no character");
    if (most == 2 && code >= 0x80) refuse("a byte beyond ASCII");
    return code;
  }

  void set() {
    skip("[");
    out_ += '[';
    if (skip("^")) out_ += '^';
    if (next_is("]")) refuse("an empty class");
    while (!skip("]")) {
      if (at_end()) refuse("a '[' without its ']'");
      if (next_is("[")) refuse("a class inside a class");
      if (next_is("&&")) refuse("the intersection '&&'");
      set_item();
    }
    out_ += ']';
  }

  void set_item() {
    if (skip("\\s")) return void(out_ += kSpace);
    if (skip("\\S")) return void(out_ += kNoSpace);
    if (skip("\\d")) return void(out_ += "\\p{Nd}");
    if (skip("\\D")) return void(out_ += "\\P{Nd}");
    if (skip("\\w")) return void(out_ += kWord);
    if (next_is("\\p") || next_is("\\P")) return property();
    const char32_t first = set_character();
    put(first);
    // A '-' before the closing bracket is itself.
    if (!next_is("-") || text_.substr(at_).starts_with("-]")) return;
    skip("-");
    if (next_is("[")) refuse("a class inside a class");
    const char32_t last = set_character();
    if (last < first) refuse("a range whose bounds are reversed");
    check_range(first, last);
    out_ += '-';
    put(last);
  }

  char32_t set_character() {
    if (at_end()) refuse("a '[' without its ']'");
    return next_is("\\") ? escaped_character() : character();
  }

  // A range must not tell a new character from the older one that stands for it.
  void check_range(char32_t first, char32_t last) {
    if (last < 0x80 || (first < 0x100 && last > 0x10FFF0)) return;
    for (char32_t c = first; c <= last; ++c)
      if (unicode::is_newer_than_14(unicode::properties()[c]) || is_stand_in(c))
        refuse("a range with characters newer than Unicode 14, or that stand for such");
  }

  std::string_view text_, what_;
  size_t at_ = 0;
  std::string out_;
  char32_t last_folded_ = 0;  // the character before, if case is disregarded
};

}  // namespace

std::string to_pcre2(std::string_view oniguruma, std::string_view what) {
  return Translation(oniguruma, what).all();
}

}  // namespace trireme
