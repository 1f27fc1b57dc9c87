// Whether bytes are text: UTF-8 as RFC 3629 has it (no overlong forms, no surrogates, nothing above
// U+10FFFF), without NUL. Any thread. Cost: 1 to 10 GB/s.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

// The offset of the first byte that does not belong to a whole UTF-8 sequence.
std::optional<size_t> find_invalid_utf8(std::string_view bytes);

// The offset of the first byte that shows a binary file: a NUL, or, where more than 3 in 10 bytes
// are control characters that texts do not have, the first of these.
std::optional<size_t> find_binary(std::string_view bytes);

// With U+FFFD for what is not UTF-8, such as a character cut by the edge of a window.
std::string replace_invalid_utf8(std::string_view bytes);

}  // namespace trireme
