// Markup that cannot be injected into. Only string literals of this program become markup; whatever
// comes at run time goes in as text, with everything escaped that means something to a browser. The
// compiler holds the difference: a Literal cannot be made of a string that is not a constant.
#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace trireme::report {

struct Literal {
  // NOLINTNEXTLINE: implicit on purpose, so that html.add("<p>") reads itself.
  consteval Literal(const char* markup) : markup(markup) {}
  std::string_view markup;
};

// `text` as the content of an element or of a double-quoted attribute. Control characters that HTML
// forbids become their visible pictures (U+2400 …), and bytes that are not UTF-8 become U+FFFD.
std::string escaped(std::string_view text);

class Html {
 public:
  Html& add(Literal literal) {
    out_ += literal.markup;
    return *this;
  }
  Html& text(std::string_view text) {
    out_ += escaped(text);
    return *this;
  }
  Html& number(std::integral auto value) {
    out_ += std::to_string(value);
    return *this;
  }
  Html& number(double value, int decimals);  // REQUIRES: finite; "0.5", not "0.50"
  Html& add(const Html& other) {
    out_ += other.out_;
    return *this;
  }

  bool empty() const { return out_.empty(); }
  const std::string& str() const { return out_; }

 private:
  friend Html json_data(const std::string& json);
  friend Html asset(std::string_view content);
  std::string out_;
};

// <script type="application/json">, in which the text cannot end the element. REQUIRES: valid JSON.
Html json_data(const std::string& json);

// The content of <style> or <script>: one of assets.h.
Html asset(std::string_view content);

}  // namespace trireme::report
