#define PCRE2_CODE_UNIT_WIDTH 8
#include "data/tokenizer/pattern.h"

#include <pcre2.h>

#include <span>
#include <utility>

#include "base/error.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/unicode_tables.h"

namespace trireme {
namespace {

using unicode::Category;

// For each category that has new characters, an old one of 3 and of 4 bytes that no expression is
// likely to name; 0 where none is needed.
struct Stand {
  Category category;
  char32_t three, four;
};
constexpr Stand kStands[] = {
    {Category::Lu, 0xA640, 0x10400}, {Category::Ll, 0xA641, 0x10428},
    {Category::Lm, 0, 0x16B40},      {Category::Lo, 0, 0x10600},
    {Category::Mn, 0xA6F0, 0x10A01}, {Category::Mc, 0xA823, 0x11000},
    {Category::Nd, 0, 0x104A0},      {Category::No, 0, 0x10107},
    {Category::Pd, 0, 0x10EAD},      {Category::Po, 0xA60D, 0x10100},
    {Category::Sm, 0, 0x1D6C1},      {Category::So, 0xA490, 0x10137},
    {Category::Cf, 0, 0x110BD},
};
constexpr char32_t kHan = 0x2FA1D;

char32_t stand_in(char32_t code) {
  const std::span han(unicode::changed_han, unicode::changed_han_count);
  for (size_t i = 0; i < han.size(); i += 2)
    if (code >= han[i] && code <= han[i + 1]) return kHan;
  const Category category = unicode::category(code);
  for (const Stand& stand : kStands)
    if (stand.category == category) return code < 0x10000 ? stand.three : stand.four;
  return code;
}

}  // namespace

bool is_stand_in(char32_t code) {
  for (const Stand& stand : kStands)
    if (code == stand.three || code == stand.four) return true;
  return code == kHan;
}

PatternScratch::PatternScratch() : match_(pcre2_match_data_create_8(1, nullptr)) {
  TRIREME_ASSERT(match_ != nullptr, "no memory for PCRE2");
}
PatternScratch::~PatternScratch() { pcre2_match_data_free_8(match_); }

Pattern Pattern::literal(std::string text) {
  Pattern made;
  made.text_ = std::move(text);
  return made;
}

Pattern Pattern::regex(std::string_view oniguruma, std::string_view what) {
  const std::string translated = to_pcre2(oniguruma, what);
  std::unique_ptr<pcre2_compile_context_8, decltype(&pcre2_compile_context_free_8)> context(
      pcre2_compile_context_create_8(nullptr), pcre2_compile_context_free_8);
  TRIREME_ASSERT(context != nullptr, "no memory for PCRE2");
  pcre2_set_newline_8(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  Pattern made;
  made.text_ = oniguruma;
  made.code_ = pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(translated.data()), translated.size(),
                               PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (made.code_ == nullptr) {
    char message[200] = {};
    pcre2_get_error_message_8(error, reinterpret_cast<PCRE2_UCHAR8*>(message), sizeof message);
    throw InputError(concat(what, ": the expression '", oniguruma, "' is not valid: ", message));
  }
  pcre2_jit_compile_8(made.code_, PCRE2_JIT_COMPLETE);  // where it is not to be had: interpreted
  uint32_t matches_empty = 0;
  pcre2_pattern_info_8(made.code_, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  TRIREME_CHECK(!matches_empty, what, ": the expression '", oniguruma,
                "' can match nothing, which is not supported");
  return made;
}

Pattern::Pattern(Pattern&& other) noexcept
    : text_(std::move(other.text_)), code_(std::exchange(other.code_, nullptr)) {}

Pattern::~Pattern() { pcre2_code_free_8(code_); }

std::string_view Pattern::prepare(std::string_view text, std::string& copy) const {
  if (code_ == nullptr) return text;
  const char *p = text.data(), *const end = p + text.size();
  const char* copied = nullptr;  // the text before it is in `copy`
  const uint8_t* const properties = unicode::properties();
  while (p < end) {
    if ((*p & 0x80) == 0) {
      ++p;
      continue;
    }
    const auto [code, bytes] = unicode::decode(p, end);
    if (code == unicode::kNoCharacter || unicode::is_newer_than_14(properties[code])) {
      if (copied == nullptr) copied = text.data(), copy.clear();
      copy.append(copied, p);
      if (code == unicode::kNoCharacter) copy += '\1';
      else unicode::append(copy, stand_in(code));
      copied = p + bytes;
    }
    p += bytes;
  }
  if (copied == nullptr) return text;
  copy.append(copied, end);
  TRIREME_ASSERT(copy.size() == text.size(), "a stand-in of another length");
  return copy;
}

bool Pattern::find(std::string_view prepared, size_t from, PatternScratch& scratch, size_t& begin,
                   size_t& end) const {
  if (code_ == nullptr) {
    begin = text_.empty() ? std::string_view::npos : prepared.find(text_, from);
    end = begin + text_.size();
    return begin != std::string_view::npos;
  }
  const auto match = [&](uint32_t options) {
    return pcre2_match_8(code_, reinterpret_cast<PCRE2_SPTR8>(prepared.data()), prepared.size(),
                         from, PCRE2_NO_UTF_CHECK | options, scratch.match_, nullptr);
  };
  int found = match(0);
  if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = match(PCRE2_NO_JIT);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    char message[200] = {};
    pcre2_get_error_message_8(found, reinterpret_cast<PCRE2_UCHAR8*>(message), sizeof message);
    throw RunError(concat("tokenizing: the expression '", text_, "' failed at byte ", from, " of ",
                          prepared.size(), ": ", message));
  }
  const size_t* const place = pcre2_get_ovector_pointer_8(scratch.match_);
  begin = place[0], end = place[1];
  return true;
}

}  // namespace trireme
