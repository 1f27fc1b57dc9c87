// Element types of libtorch and of Trireme, one from the other.
#pragma once

#include <c10/core/ScalarType.h>

#include "layout/dtype.h"

namespace trireme {

DType dtype_of(c10::ScalarType type);  // InputError for a type that Trireme does not store
c10::ScalarType scalar_type_of(DType dtype);

}  // namespace trireme
