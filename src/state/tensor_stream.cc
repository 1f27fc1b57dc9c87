#include "state/tensor_stream.h"

#include <algorithm>

namespace trireme {

TensorStream::TensorStream(const Checkpoint& from, const TensorRecord& tensor, DType dtype,
                           int64_t slab_bytes)
    : from_(from), tensor_(tensor), dtype_(dtype) {
  const int64_t width = bytes_of(dtype);
  bytes_left_ = numel_of(tensor.shape) * width;
  int64_t index_bytes = std::max<int64_t>(bytes_left_, width);  // of one index of dim_
  for (dim_ = 0; dim_ < tensor.shape.size(); ++dim_) {
    index_bytes /= std::max<int64_t>(tensor.shape[dim_], 1);
    if (index_bytes <= slab_bytes || dim_ + 1 == tensor.shape.size()) break;
  }
  slab_extent_ = std::max<int64_t>(slab_bytes / std::max<int64_t>(index_bytes, 1), 1);
  at_.assign(tensor.shape.empty() ? 0 : dim_ + 1, 0);
}

void TensorStream::fill() {
  Slice slice = Slice::whole(tensor_.shape);
  if (!at_.empty()) {
    for (size_t dim = 0; dim < dim_; ++dim) slice.dims[dim] = {{at_[dim], at_[dim] + 1}};
    const int64_t end = std::min(at_[dim_] + slab_extent_, tensor_.shape[dim_]);
    slice.dims[dim_] = {{at_[dim_], end}};
    at_[dim_] = end;
    for (size_t dim = dim_; dim > 0 && at_[dim] == tensor_.shape[dim]; --dim)
      at_[dim] = 0, ++at_[dim - 1];
  }
  slab_.resize(static_cast<size_t>(slice.numel() * bytes_of(dtype_)));
  from_.read(tensor_.name, slice, dtype_, slab_);
  used_ = 0;
}

void TensorStream::read(std::span<std::byte> out) {
  TRIREME_ASSERT(static_cast<int64_t>(out.size()) <= bytes_left_, tensor_.name, ": ", out.size(),
                 " of ", bytes_left_, " bytes left");
  bytes_left_ -= static_cast<int64_t>(out.size());
  while (!out.empty()) {
    if (used_ == slab_.size()) fill();
    const size_t n = std::min(out.size(), slab_.size() - used_);
    std::copy_n(slab_.data() + used_, n, out.data());
    used_ += n;
    out = out.subspan(n);
  }
}

}  // namespace trireme
