#include "kernel/embedding.h"

#include <ATen/ATen.h>

#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

void check_ids(const at::Tensor& ids, int64_t rows) {
  const int64_t* id = ids.const_data_ptr<int64_t>();
  for (int64_t t = 0; t < ids.numel(); ++t)
    TRIREME_CHECK(id[t] >= 0 && id[t] < rows, "embedding: id ", id[t], " at place ", t,
                  " is outside the table of ", rows, " rows");
}

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const at::Tensor& weight, Mode mode) {
  require_shape("embedding", "ids", ids, {-1});
  require(ids.scalar_type() == at::kLong, "embedding: ids must be int64, got ", describe(ids));
  require_shape("embedding", "weight", weight, {-1, -1});
  if (ids.is_cpu()) check_ids(ids, weight.size(0));
  (void)mode;
  return weight.index_select(0, ids);
}

}  // namespace trireme::kernel
