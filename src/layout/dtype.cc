#include "layout/dtype.h"

#include <array>

#include "base/error.h"

namespace trireme {
namespace {

struct Facts {
  DType dtype;
  int64_t bytes;
  std::string_view name, safetensors;
};

constexpr std::array<Facts, 10> kFacts = {{
    {DType::float64, 8, "fp64", "F64"},
    {DType::float32, 4, "fp32", "F32"},
    {DType::bfloat16, 2, "bf16", "BF16"},
    {DType::float16, 2, "fp16", "F16"},
    {DType::int64, 8, "int64", "I64"},
    {DType::int32, 4, "int32", "I32"},
    {DType::int16, 2, "int16", "I16"},
    {DType::int8, 1, "int8", "I8"},
    {DType::uint8, 1, "uint8", "U8"},
    {DType::boolean, 1, "bool", "BOOL"},
}};

const Facts& facts(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  TRIREME_ASSERT(index < kFacts.size() && kFacts[index].dtype == dtype, "dtype ", index);
  return kFacts[index];
}

}  // namespace

int64_t bytes_of(DType dtype) { return facts(dtype).bytes; }
std::string_view name_of(DType dtype) { return facts(dtype).name; }
std::string_view safetensors_name(DType dtype) { return facts(dtype).safetensors; }

std::optional<DType> parse_dtype(std::string_view name) {
  for (const Facts& f : kFacts)
    if (name == f.name || name == f.safetensors) return f.dtype;
  return std::nullopt;
}

}  // namespace trireme
