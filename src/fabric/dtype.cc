#include "fabric/dtype.h"

#include <array>
#include <utility>

#include "base/error.h"

namespace trireme {
namespace {

constexpr std::array<std::pair<DType, c10::ScalarType>, 10> kPairs = {{
    {DType::float64, c10::ScalarType::Double},
    {DType::float32, c10::ScalarType::Float},
    {DType::bfloat16, c10::ScalarType::BFloat16},
    {DType::float16, c10::ScalarType::Half},
    {DType::int64, c10::ScalarType::Long},
    {DType::int32, c10::ScalarType::Int},
    {DType::int16, c10::ScalarType::Short},
    {DType::int8, c10::ScalarType::Char},
    {DType::uint8, c10::ScalarType::Byte},
    {DType::boolean, c10::ScalarType::Bool},
}};

}  // namespace

DType dtype_of(c10::ScalarType type) {
  for (const auto& [ours, theirs] : kPairs)
    if (theirs == type) return ours;
  throw InputError(concat("tensors of type ", c10::toString(type), " are neither stored nor sent"));
}

c10::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [ours, theirs] : kPairs)
    if (ours == dtype) return theirs;
  TRIREME_ASSERT(false, "dtype ", static_cast<int>(dtype));
  return c10::ScalarType::Undefined;
}

}  // namespace trireme
