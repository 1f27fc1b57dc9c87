#include "sparse/row_batch.h"

#include <limits>

#include "base/error.h"

namespace trireme {
namespace {

template <class T>
constexpr DType kDTypeOf = std::is_same_v<T, float> ? DType::float32 : DType::int64;

// Calls visit(name, vector, shape) for every vector of the batch.
template <class Batch, class Visit>
void for_each_vector(Batch& batch, int64_t rows, int64_t tombstones, Visit&& visit) {
  visit("key", batch.key, Shape{rows});
  visit("weight", batch.weight, Shape{rows, batch.dim});
  visit("moment", batch.moment, Shape{rows, batch.moments, batch.dim});
  visit("row_moment", batch.row_moment, Shape{rows});
  visit("count", batch.count, Shape{rows});
  visit("updates", batch.updates, Shape{rows});
  visit("touched", batch.touched, Shape{rows});
  visit("version", batch.version, Shape{rows});
  visit("erased_key", batch.erased_key, Shape{tombstones});
  visit("erased_version", batch.erased_version, Shape{tombstones});
}

void check_range(std::string_view who, const char* what, const std::vector<int64_t>& values,
                 int64_t least) {
  for (size_t i = 0; i < values.size(); ++i)
    TRIREME_CHECK(values[i] >= least && values[i] <= std::numeric_limits<uint32_t>::max(), who,
                  ": ", what, "[", i, "] is ", values[i], ", expected ", least,
                  " to 2^32 - 1; the rows are damaged");
}

}  // namespace

void RowBatch::resize(int64_t rows, int64_t tombstones) {
  for_each_vector(*this, rows, tombstones, [](const char*, auto& vector, const Shape& shape) {
    vector.assign(static_cast<size_t>(numel_of(shape)), 0);
  });
}

void RowBatch::check(std::string_view who) const {
  for_each_vector(*this, rows(), static_cast<int64_t>(erased_key.size()),
                  [&](const char* name, const auto& vector, const Shape& shape) {
                    TRIREME_CHECK(static_cast<int64_t>(vector.size()) == numel_of(shape), who,
                                  ": '", name, "' has ", vector.size(), " elements, expected ",
                                  to_string(shape));
                  });
  check_range(who, "count", count, 0);
  check_range(who, "updates", updates, 0);
  check_range(who, "version", version, 1);
  check_range(who, "erased_version", erased_version, 1);
}

std::vector<RowTensor> tensors_of(RowBatch& batch) {
  std::vector<RowTensor> tensors;
  for_each_vector(
      batch, batch.rows(), static_cast<int64_t>(batch.erased_key.size()),
      [&]<class T>(const char* name, std::vector<T>& vector, const Shape& shape) {
        tensors.push_back({name, kDTypeOf<T>, shape, std::as_writable_bytes(std::span(vector))});
      });
  return tensors;
}

}  // namespace trireme
