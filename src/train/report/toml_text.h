// TOML as a person reads it: comments, tables, keys and values in their colours.
#pragma once

#include <string_view>

#include "train/report/html.h"

namespace trireme::report {

// Never fails: what is no TOML stays plain text. Every character of the input is in the output.
Html highlighted_toml(std::string_view text);

}  // namespace trireme::report
