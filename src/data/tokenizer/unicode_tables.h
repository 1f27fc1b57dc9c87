// The compact tables that tools/unicode_tables.py writes; their forms are named there. Read them
// through unicode.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::unicode {

extern const uint32_t category_runs[];
extern const size_t category_runs_count;
extern const uint32_t changed_since_14[];
extern const size_t changed_since_14_count;
extern const uint32_t changed_han[];
extern const size_t changed_han_count;
extern const uint32_t marks_9[];
extern const size_t marks_9_count;
extern const uint32_t punctuation_8[];
extern const size_t punctuation_8_count;
extern const uint32_t decompositions[];
extern const size_t decompositions_count;
extern const uint32_t combining_classes[];
extern const size_t combining_classes_count;
extern const int32_t lower_cases[];
extern const size_t lower_cases_count;

}  // namespace trireme::unicode
