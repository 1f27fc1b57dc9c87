#include "base/recipe/recipe.h"

#include <algorithm>

#include "base/error.h"
#include "base/recipe/convert.h"

namespace trireme {

const Value* Record::find(std::string_view field) const {
  for (const auto& [name, value] : fields_)
    if (name == field) return &value;
  return nullptr;
}

bool Record::has(std::string_view field) const { return find(field); }

const std::string& Record::text(std::string_view field) const {
  const Value* value = find(field);
  TRIREME_ASSERT(value && value->get<std::string>(), "no text in the field ", field);
  return *value->get<std::string>();
}

double Record::number(std::string_view field) const {
  const Value* value = find(field);
  TRIREME_ASSERT(value && value->get<double>(), "no number in the field ", field);
  return *value->get<double>();
}

const Recipe::Entry* Recipe::find(std::string_view name) const {
  if (const auto at = index_.find(name); at != index_.end()) return &entries_[at->second];
  TRIREME_ASSERT(schema_->find(name), "the key ", name, " is not declared");
  return nullptr;
}

bool Recipe::has(std::string_view name) const {
  const Entry* entry = find(name);
  return entry && entry->value;
}

const Value& Recipe::value(std::string_view name, std::initializer_list<KeyType> types) const {
  const Entry* entry = find(name);
  TRIREME_ASSERT(entry, "the key ", name, " has no effect in this recipe: ask has() first");
  TRIREME_ASSERT(std::ranges::find(types, entry->spec->type) != types.end(), "the key ", name,
                 " was asked for by another type: it is declared as ", wanted(*entry->spec));
  TRIREME_ASSERT(entry->value, "the key ", name, " has no value: ask has() first");
  return *entry->value;
}

int64_t Recipe::integer(std::string_view name) const {
  return *value(name, {KeyType::integer, KeyType::count}).get<int64_t>();
}

double Recipe::number(std::string_view name) const {
  return *value(name, {KeyType::number}).get<double>();
}

bool Recipe::flag(std::string_view name) const { return *value(name, {KeyType::flag}).get<bool>(); }

const std::string& Recipe::text(std::string_view name) const {
  return *value(name, {KeyType::text, KeyType::choice}).get<std::string>();
}

std::vector<double> Recipe::numbers(std::string_view name) const {
  std::vector<double> numbers;
  for (const Value& item : *value(name, {KeyType::numbers}).get<Value::List>())
    numbers.push_back(*item.get<double>());
  return numbers;
}

std::vector<std::string> Recipe::texts(std::string_view name) const {
  std::vector<std::string> texts;
  for (const Value& item : *value(name, {KeyType::texts}).get<Value::List>())
    texts.push_back(*item.get<std::string>());
  return texts;
}

std::vector<Record> Recipe::records(std::string_view name) const {
  const Value::List& list = *value(name, {KeyType::records}).get<Value::List>();
  const KeySpec& key = *find(name)->spec;
  std::vector<Record> records(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    records[i].fields_ = *list[i].get<Value::Table>();
    for (const KeySpec* field : schema_->fields(key)) {
      const std::string_view last = field->name.substr(key.name.size() + 1);
      if (field->initial != kRequired && field->initial != kOptional && !records[i].has(last))
        records[i].fields_.emplace_back(std::string(last), initial_value(*schema_, *field));
    }
  }
  return records;
}

std::vector<std::string> Recipe::families(std::string_view family) const {
  std::vector<std::string> names;
  for (const auto& [of, name] : families_)
    if (of == family) names.push_back(name);
  return names;
}

std::string Recipe::where(std::string_view name) const {
  const Entry* entry = find(name);
  TRIREME_ASSERT(entry, "the key ", name, " has no effect in this recipe: ask has() first");
  switch (entry->origin) {
    case Origin::recipe:
      return concat(path_.string(), ":", entry->line);
    case Origin::command_line:
      return "command line";
    case Origin::default_value:
      return concat(path_.string(), " (", name, " by default)");
    case Origin::derived:
      break;
  }
  return concat(path_.string(), " (", name, " from ", entry->spec->derived_from, ")");
}

void Recipe::set_derived(std::string_view name, const Value& value) {
  TRIREME_ASSERT(find(name), "the key ", name, " has no effect in this recipe");
  Entry& entry = entries_[index_.find(name)->second];
  TRIREME_ASSERT(entry.spec->initial == kDerived, "the key ", name, " is not derived");
  entry.origin = Origin::derived;
  entry.line = 0;
  entry.value = convert(*schema_, *entry.spec, entry.name, value, where(name));
  for (const RecipeCheck check : schema_->checks) check(*this);
}

}  // namespace trireme
