// Hugging Face's file format for tensors: 8 bytes of header length (little-endian), a JSON header,
// the bytes of the tensors.
//
// The reader trusts nothing: header length, JSON of exactly the known form, names that occur once,
// shape times type = bytes, tensors that tile the rest of the file without gap or overlap. Its
// memory is bounded by the header, which is at most 100 MB. Errors: InputError with the file's name
// and the tensor's.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layout/descriptor.h"
#include "state/storage.h"

namespace trireme {

constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;  // the format's own limit

struct SafetensorsEntry : TensorDescriptor {
  int64_t offset = 0;  // of its first byte in the file
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in order of their bytes
  std::map<std::string, std::string> metadata;
  int64_t bytes = 0;  // length field and JSON: where the tensors begin
};

// `name` is what errors call the file.
SafetensorsHeader read_safetensors_header(const ReadFile& file, std::string_view name);

// The first bytes of a file of these tensors in this order, with metadata {"format": "pt"}, padded
// with spaces to a multiple of 8. Fills in the offsets. InputError for a name twice, or one that
// is not UTF-8.
std::string safetensors_head(std::vector<SafetensorsEntry>& entries);

}  // namespace trireme
