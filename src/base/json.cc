#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace trireme {
namespace {

// Texts of a file, as a message may show them: on one line, and not for ever.
std::string shown(std::string_view text) {
  constexpr size_t kMost = 80;
  std::string out;
  for (const char c : text.substr(0, kMost))
    out += static_cast<unsigned char>(c) < ' ' || c == 127 ? '?' : c;
  while (text.size() > kMost && !out.empty() && (out.back() & 0x80)) out.pop_back();
  return out + (text.size() > kMost ? "…" : "");
}

// Builds the value from the parser's events. nlohmann's own builder lets a key come twice, has no
// limits, and looks through all of an ordered object for each key that it adds.
template <class Json>
class Builder {
 public:
  using number_integer_t = typename Json::number_integer_t;
  using number_unsigned_t = typename Json::number_unsigned_t;
  using number_float_t = typename Json::number_float_t;
  using string_t = typename Json::string_t;
  using binary_t = typename Json::binary_t;

  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(number_integer_t value) { return add(value); }
  bool number_unsigned(number_unsigned_t value) { return add(value); }
  bool number_float(number_float_t value, const string_t&) { return add(value); }
  bool string(string_t& value) { return add(std::move(value)); }
  bool binary(binary_t&) { return fail("binary data"); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_array() { return open_.pop_back(), true; }
  bool key(string_t& name) { return key_ = std::move(name), true; }

  bool end_object() {
    const Json& object = *open_.back();
    open_.pop_back();
    if constexpr (!kOrdered) return true;  // add() has looked
    std::vector<std::string_view> names;
    names.reserve(object.size());
    for (const auto& [name, value] : object.template get_ref<const typename Json::object_t&>())
      names.push_back(name);
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    return twice == names.end() || fail_twice(*twice);
  }

  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception& error) {
    // Without the library's own beginning: "[…] parse error at line 1, column 2: " or "[…] ".
    std::string_view what = error.what();
    for (const std::string_view end : {"] ", ": "})
      if (const size_t found = what.find(end); found < 60) what.remove_prefix(found + 2);
    return fail(concat("at byte ", at, ": ", shown(what)));
  }

  Json value;
  std::string problem;

 private:
  static constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;

  bool fail(std::string what) { return problem = std::move(what), false; }
  bool fail_twice(std::string_view name) {
    return fail(concat("the key \"", shown(name), "\" occurs twice in one object"));
  }

  // Where it lies, or nullptr if it is refused. Only the innermost open value grows, so that those
  // around it stay where they are.
  Json* place(Json&& one) {
    if (++values_ > limits_.values)
      return fail(concat("it has more than ", limits_.values, " values")), nullptr;
    if (open_.empty()) return value = std::move(one), &value;
    Json& in = *open_.back();
    if (in.is_array())
      return &in.template get_ref<typename Json::array_t&>().emplace_back(std::move(one));
    auto& object = in.template get_ref<typename Json::object_t&>();
    if constexpr (kOrdered) {
      using Entries = std::vector<typename Json::object_t::value_type>;
      return &static_cast<Entries&>(object).emplace_back(std::move(key_), std::move(one)).second;
    } else {
      const auto [at, fresh] = object.try_emplace(std::move(key_), std::move(one));
      if (!fresh) fail_twice(at->first);
      return fresh ? &at->second : nullptr;
    }
  }
  bool add(Json&& one) { return place(std::move(one)) != nullptr; }
  bool open(Json&& one) {
    if (static_cast<int>(open_.size()) == limits_.depth)
      return fail(concat("it is nested deeper than ", limits_.depth));
    Json* at = place(std::move(one));
    if (at) open_.push_back(at);
    return at != nullptr;
  }

  const JsonLimits& limits_;
  std::vector<Json*> open_;
  std::string key_;
  size_t values_ = 0;
};

}  // namespace

template <class Json>
Result<Json> try_parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    return Result<Json>::failure(
        concat("it has ", text.size(), " bytes, at most ", limits.bytes, " are read"));
  Builder<Json> builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder))
    return Result<Json>::failure(std::move(builder.problem));
  return std::move(builder.value);
}

template <class Json>
Json parse_json(std::string_view text, std::string_view origin, const JsonLimits& limits) {
  Result<Json> parsed = try_parse_json<Json>(text, limits);
  TRIREME_CHECK(parsed.ok(), origin, ": this is no JSON that can be read: ", parsed.reason());
  return std::move(parsed).value();
}

template Result<nlohmann::json> try_parse_json(std::string_view, const JsonLimits&);
template Result<nlohmann::ordered_json> try_parse_json(std::string_view, const JsonLimits&);
template nlohmann::json parse_json(std::string_view, std::string_view, const JsonLimits&);
template nlohmann::ordered_json parse_json(std::string_view, std::string_view, const JsonLimits&);

}  // namespace trireme
