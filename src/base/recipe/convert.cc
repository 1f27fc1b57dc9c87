#include "base/recipe/convert.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/nearest.h"
#include "base/recipe/terms.h"
#include "base/recipe/toml_reader.h"

namespace trireme {
namespace {

// What a conversion is about, for its messages.
struct Subject {
  const Schema& schema;
  const KeySpec& key;
  const std::string& name;
  const std::string& where;
};

[[noreturn]] void wrong_type(const Subject& subject, const Value& given) {
  throw InputError(concat(subject.where, ": ", subject.name, " wants ", wanted(subject.key),
                          ", found ", shown(given), ", ", type_name(given)));
}

Value in_range(const Subject& subject, Value number) {
  const auto* floating = number.get<double>();
  const auto broken = floating && !std::isfinite(*floating)
                          ? std::optional<std::string>("finite")
                          : broken_bound(subject.key.range, number);
  if (!broken) return number;
  const std::string unit = subject.key.unit.empty() ? "" : concat(" ", subject.key.unit);
  throw InputError(concat(subject.where, ": ", subject.name, " = ", to_toml(number), unit,
                          " is out of range: it must be ", *broken));
}

// "20M" -> 20'000'000; nullopt when it is no count or does not fit.
std::optional<int64_t> parse_count(std::string_view text) {
  static constexpr std::string_view suffixes = "kMBT";
  int zeros = 0;
  if (const size_t at = text.empty() ? text.npos : suffixes.find(text.back()); at != text.npos) {
    zeros = 3 * static_cast<int>(at + 1);
    text.remove_suffix(1);
  }
  const size_t dot = text.find('.');
  if (text.empty() || dot == 0 || dot == text.size() - 1) return std::nullopt;
  if (dot != text.npos) zeros -= static_cast<int>(text.size() - dot - 1);
  if (zeros < 0) return std::nullopt;
  int64_t count = 0;
  const auto append = [&count](int64_t digit) {
    return !__builtin_mul_overflow(count, 10, &count) &&
           !__builtin_add_overflow(count, digit, &count);
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (i == dot) continue;
    if (!std::isdigit(static_cast<unsigned char>(text[i])) || !append(text[i] - '0'))
      return std::nullopt;
  }
  for (; zeros > 0; --zeros)
    if (!append(0)) return std::nullopt;
  return count;
}

Value to_number(const Subject& subject, const Value& given) {
  if (const auto* integer = given.get<int64_t>())
    return in_range(subject, static_cast<double>(*integer));
  if (given.get<double>()) return in_range(subject, given);
  wrong_type(subject, given);
}

Value to_count(const Subject& subject, const Value& given) {
  if (given.get<int64_t>()) return in_range(subject, given);
  const auto* text = given.get<std::string>();
  const auto count = text ? parse_count(*text) : std::nullopt;
  if (!count) wrong_type(subject, given);
  return in_range(subject, *count);
}

Value to_choice(const Subject& subject, const Value& given) {
  const auto* text = given.get<std::string>();
  if (!text) wrong_type(subject, given);
  std::vector<std::string> names;
  for (const Choice& choice : parse_choices(subject.key.choices)) {
    if (choice.name == *text) return given;
    names.push_back(choice.name);
  }
  const auto meant = nearest(*text, names);
  throw InputError(concat(subject.where, ": ", subject.name, " wants ", wanted(subject.key),
                          ", found ", shown(given),
                          meant ? concat("; did you mean \"", *meant, "\"?") : ""));
}

Value to_list(const Subject& subject, const Value& given,
              Value (*convert_item)(const Subject&, const Value&)) {
  const auto* list = given.get<Value::List>();
  if (!list) wrong_type(subject, given);
  const size_t length = subject.key.length;
  TRIREME_CHECK(length == 0 || list->size() == length, subject.where, ": ", subject.name, " wants ",
                wanted(subject.key), ", found ", list->size(), ": ", shown(given));
  Value::List converted;
  for (const Value& item : *list) converted.push_back(convert_item(subject, item));
  return converted;
}

Value to_text(const Subject& subject, const Value& given) {
  if (!given.get<std::string>()) wrong_type(subject, given);
  return given;
}

Value to_record(const Subject& subject, const Value& given) {
  const std::vector<const KeySpec*> fields = subject.schema.fields(subject.key);
  TRIREME_ASSERT(!fields.empty(), subject.name, " has no fields");
  const auto field_name = [&](const KeySpec& field) {
    return std::string(field.name.substr(subject.key.name.size() + 1));
  };
  if (given.get<std::string>()) return Value::Table{{field_name(*fields[0]), given}};
  const auto* table = given.get<Value::Table>();
  if (!table) wrong_type(subject, given);

  Value::Table converted;
  for (const KeySpec* field : fields) {
    const std::string name = field_name(*field);
    const Value* value = nullptr;
    for (const auto& [key, item] : *table)
      if (key == name) value = &item;
    TRIREME_CHECK(value || field->initial != kRequired, subject.where, ": ", subject.name,
                  " lacks the field ", name, " in ", shown(given));
    if (value)
      converted.emplace_back(
          name, convert(subject.schema, *field, std::string(field->name), *value, subject.where));
  }
  if (converted.size() == table->size()) return converted;

  std::vector<std::string> known;
  for (const KeySpec* field : fields) known.push_back(field_name(*field));
  for (const auto& [key, item] : *table)
    if (std::ranges::find(known, key) == known.end())
      throw InputError(concat(subject.where, ": ", subject.name, " has no field ", key, "; it has ",
                              join_or(known)));
  TRIREME_ASSERT(false, subject.name, " has a field twice");
}

}  // namespace

Value convert(const Schema& schema, const KeySpec& key, const std::string& name, const Value& given,
              const std::string& where) {
  const Subject subject{schema, key, name, where};
  switch (key.type) {
    case KeyType::integer:
      if (!given.get<int64_t>()) wrong_type(subject, given);
      return in_range(subject, given);
    case KeyType::count:
      return to_count(subject, given);
    case KeyType::number:
      return to_number(subject, given);
    case KeyType::flag:
      if (!given.get<bool>()) wrong_type(subject, given);
      return given;
    case KeyType::text:
      return to_text(subject, given);
    case KeyType::choice:
      return to_choice(subject, given);
    case KeyType::numbers:
      return to_list(subject, given, to_number);
    case KeyType::texts:
      return to_list(subject, given, to_text);
    case KeyType::records:
      return to_list(subject, given, to_record);
  }
  TRIREME_ASSERT(false, "type of ", name);
}

Value initial_value(const Schema& schema, const KeySpec& key) {
  const std::string name(key.name);
  const auto parsed = read_toml_value(name, key.initial);
  TRIREME_ASSERT(parsed && parsed->size() == 1, "default of ", name, ": ", key.initial);
  return convert(schema, key, name, parsed->front().value, "the default");
}

std::string wanted(const KeySpec& key) {
  const std::string many = key.length > 0 ? concat("a list of ", key.length, " ") : "a list of ";
  std::vector<std::string> names;
  switch (key.type) {
    case KeyType::integer:
      return "an integer";
    case KeyType::count:
      return "an integer or a text such as \"20M\"";
    case KeyType::number:
      return "a number";
    case KeyType::flag:
      return "true or false";
    case KeyType::text:
      return "a text";
    case KeyType::choice:
      for (const Choice& choice : parse_choices(key.choices))
        names.push_back(concat('"', choice.name, '"'));
      return join_or(names);
    case KeyType::numbers:
      return many + "numbers";
    case KeyType::texts:
      return many + "texts";
    case KeyType::records:
      return many + "texts or tables";
  }
  TRIREME_ASSERT(false, "type of ", key.name);
}

std::string shown(const Value& value) {
  constexpr size_t kLongest = 80;
  std::string text = to_toml(value);
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // whole letters
  return text.substr(0, end) + "…";
}

}  // namespace trireme
