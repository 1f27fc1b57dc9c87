#include "base/error.h"

namespace trireme {

void throw_internal_error(const char* file, int line, const char* condition,
                          const std::string& message) {
  throw InternalError(
      concat("internal error at ", file, ":", line, ": ", condition, " does not hold",
             message.empty() ? "" : ": ", message,
             "\nnext: this is a bug in Trireme; please report it with the command and its recipe"));
}

}  // namespace trireme
