#include "base/recipe/schema.h"

namespace trireme {
namespace {

// "feature.*.kind" against "feature.user.kind".
bool matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name;
  const std::string_view head = pattern.substr(0, star), tail = pattern.substr(star + 1);
  if (name.size() <= head.size() + tail.size()) return false;
  if (!name.starts_with(head) || !name.ends_with(tail)) return false;
  const size_t length = name.size() - head.size() - tail.size();
  return name.substr(star, length).find('.') == name.npos;
}

}  // namespace

const KeySpec* Schema::find(std::string_view name) const {
  const KeySpec* by_pattern = nullptr;
  for (const KeySpec& key : keys) {
    if (key.name == name) return &key;
    if (!by_pattern && matches(key.name, name)) by_pattern = &key;
  }
  return by_pattern;
}

std::vector<const KeySpec*> Schema::fields(const KeySpec& records) const {
  std::vector<const KeySpec*> found;
  for (const KeySpec& key : keys)
    if (records_of(key) == &records) found.push_back(&key);
  return found;
}

const KeySpec* Schema::records_of(const KeySpec& field) const {
  const size_t dot = field.name.rfind('.');
  if (dot == field.name.npos) return nullptr;
  for (const KeySpec& key : keys)
    if (key.type == KeyType::records && key.name == field.name.substr(0, dot)) return &key;
  return nullptr;
}

}  // namespace trireme
