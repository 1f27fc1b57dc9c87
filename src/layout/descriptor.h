// What a stored or communicated tensor is, without its bytes.
#pragma once

#include <string>

#include "layout/dtype.h"
#include "layout/slice.h"

namespace trireme {

struct TensorDescriptor {
  std::string name;  // global: Hugging Face's where one exists
  Shape shape;       // global
  DType dtype = DType::float32;

  int64_t numel() const { return numel_of(shape); }
  int64_t nbytes() const;  // InputError beyond int64
  bool operator==(const TensorDescriptor&) const = default;
};

std::string to_string(const TensorDescriptor& tensor);  // "model.norm.weight fp32 [256]"

}  // namespace trireme
