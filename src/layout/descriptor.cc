#include "layout/descriptor.h"

#include "base/error.h"

namespace trireme {

int64_t TensorDescriptor::nbytes() const {
  int64_t nbytes = 0;
  TRIREME_CHECK(!__builtin_mul_overflow(numel(), bytes_of(dtype), &nbytes), "tensor ",
                to_string(*this), " has more bytes than 63 bits can count");
  return nbytes;
}

std::string to_string(const TensorDescriptor& tensor) {
  return concat(tensor.name, " ", name_of(tensor.dtype), " ", to_string(tensor.shape));
}

}  // namespace trireme
