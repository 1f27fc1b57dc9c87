#include "base/nearest.h"

#include <algorithm>
#include <vector>

namespace trireme {

size_t edit_distance(std::string_view a, std::string_view b) {
  // Three rows of the table d(i, j), the distance of a's first i and b's first j letters.
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.size() > 200) return std::nullopt;  // no typing mistake, and the cost grows with it
  const std::string* best = nullptr;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const size_t distance = edit_distance(word, candidate);
    if (distance < least && distance < candidate.size()) best = &candidate, least = distance;
  }
  if (!best) return std::nullopt;
  return *best;
}

}  // namespace trireme
