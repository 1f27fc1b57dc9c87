// The page's style sheet and script, as they go into it.
#pragma once

#include <string_view>

namespace trireme::report {

extern const std::string_view kStyle;   // style.cc
extern const std::string_view kScript;  // script.cc

}  // namespace trireme::report
