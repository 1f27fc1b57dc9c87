// Stored bytes are not what was written.
#pragma once

#include "base/error.h"

namespace trireme {

// Names the file and, where it is known, the tensor. A reader that has an older checkpoint falls
// back to it (load_newest() in retention.h).
class DamagedError : public RunError {
 public:
  using RunError::RunError;
};

}  // namespace trireme
