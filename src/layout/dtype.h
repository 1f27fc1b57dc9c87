// Element types of stored and communicated tensors, without libtorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace trireme {

enum class DType : uint8_t {
  float64,
  float32,
  bfloat16,
  float16,
  int64,
  int32,
  int16,
  int8,
  uint8,
  boolean
};

int64_t bytes_of(DType dtype);                   // of one element
std::string_view name_of(DType dtype);           // "fp32", "bf16": as a recipe and a table say it
std::string_view safetensors_name(DType dtype);  // "F32", "BF16": as a safetensors header says it
std::optional<DType> parse_dtype(std::string_view name);  // of either spelling

}  // namespace trireme
