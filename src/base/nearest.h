// Which of the known words did the user mean? For keys, verbs, options, choices.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// Insertions, deletions, substitutions and swaps of neighbours that lead from one to the other
// (optimal string alignment). Cost: the product of the lengths.
size_t edit_distance(std::string_view a, std::string_view b);

// The candidate at the least distance, the first of equals, unless it is too far to be meant: more
// than two edits and more than a third of the word.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace trireme
