#include "state/manifest.h"

#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "base/error.h"
#include "state/damage.h"
#include "state/manifest_json.h"

namespace trireme {
namespace {

constexpr std::string_view kFormat = "trireme-checkpoint";
constexpr std::string_view kDigestKey = ",\n \"digest\": \"xxh128:";
constexpr std::string_view kDigestEnd = "\"}\n";
constexpr size_t kDigestDigits = 32;

std::string hex(uint64_t value, int digits) {
  std::string text;
  for (int digit = digits - 1; digit >= 0; --digit)
    text += "0123456789abcdef"[value >> (4 * digit) & 15];
  return text;
}

std::string digest_line(std::string_view body) {
  const XXH128_hash_t hash = XXH3_128bits(body.data(), body.size());
  return concat(kDigestKey, hex(hash.high64, 16), hex(hash.low64, 16), kDigestEnd);
}

bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name[0] != '.' && name != kManifestName &&
         std::ranges::all_of(name, [](unsigned char c) { return c > ' ' && c != '/' && c != 127; });
}

bool ranges_meet(const std::vector<Range>& a, const std::vector<Range>& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (std::max(a[i].begin, b[j].begin) < std::min(a[i].end, b[j].end)) return true;
    if (a[i].end <= b[j].end) ++i;
    else ++j;
  }
  return false;
}

bool slices_meet(const Slice& a, const Slice& b) {
  for (size_t dim = 0; dim < a.dims.size(); ++dim)
    if (!ranges_meet(a.dims[dim], b.dims[dim])) return false;
  return true;
}

// Two chunks that share an element, or nothing. Sweeps along the dim that sets most chunks apart,
// so that a grid of n chunks costs about n times its other dims' parts.
std::string overlap_problem(const TensorRecord& tensor) {
  size_t sweep = 0, most = 0;
  for (size_t dim = 0; dim < tensor.shape.size(); ++dim) {
    std::set<int64_t> begins;
    for (const ChunkRecord& chunk : tensor.chunks)
      begins.insert(chunk.slice.dims[dim].front().begin);
    if (begins.size() > most) most = begins.size(), sweep = dim;
  }
  std::vector<const ChunkRecord*> order;
  for (const ChunkRecord& chunk : tensor.chunks) order.push_back(&chunk);
  const auto begin = [&](const ChunkRecord* c) { return c->slice.dims[sweep].front().begin; };
  const auto end = [&](const ChunkRecord* c) { return c->slice.dims[sweep].back().end; };
  if (!tensor.shape.empty()) std::ranges::stable_sort(order, {}, begin);
  for (size_t i = 0; i < order.size(); ++i)
    for (size_t j = i + 1; j < order.size(); ++j) {
      if (!tensor.shape.empty() && begin(order[j]) >= end(order[i])) break;
      if (slices_meet(order[i]->slice, order[j]->slice))
        return concat("chunks ", to_string(order[i]->slice), " and ", to_string(order[j]->slice),
                      " overlap");
    }
  return "";
}

std::string chunk_problem(const TensorRecord& tensor, const ChunkRecord& chunk,
                          const Manifest& manifest) {
  if (auto problem = slice_problem(chunk.slice, tensor.shape); !problem.empty()) return problem;
  const int64_t numel = chunk.slice.numel();  // at most the tensor's
  if (numel == 0) return concat("chunk ", to_string(chunk.slice), " is empty");
  if (chunk.bytes != numel * bytes_of(tensor.dtype))
    return concat("chunk ", to_string(chunk.slice), " takes ", numel * bytes_of(tensor.dtype),
                  " bytes, recorded are ", chunk.bytes);
  const FileRecord* file = manifest.find_file(chunk.file);
  if (!file) return concat("file ", chunk.file, " is not among the files");
  if (chunk.offset < file->head_bytes || chunk.offset > file->bytes ||
      chunk.bytes > file->bytes - chunk.offset)
    return concat("chunk ", to_string(chunk.slice), " lies outside of ", chunk.file);
  const int64_t blocks = (chunk.bytes - 1) / manifest.block_bytes + 1;
  if (static_cast<int64_t>(chunk.crc32c.size()) != blocks)
    return concat("chunk ", to_string(chunk.slice), " has ", chunk.crc32c.size(), " checksums for ",
                  blocks, " blocks");
  return "";
}

std::string tensor_problem(const TensorRecord& tensor, const Manifest& manifest) {
  if (!valid_kind(tensor.kind)) return concat("kind ", Json(tensor.kind).dump(), " is none");
  int64_t numel = 0, held = 0, nbytes = 0;
  try {
    numel = numel_of(tensor.shape);
  } catch (const InputError& error) {
    return error.what();
  }
  if (__builtin_mul_overflow(numel, bytes_of(tensor.dtype), &nbytes))
    return concat("shape ", to_string(tensor.shape), " is too large");
  for (const ChunkRecord& chunk : tensor.chunks) {
    if (auto problem = chunk_problem(tensor, chunk, manifest); !problem.empty()) return problem;
    const int64_t more = chunk.slice.numel();
    if (more > numel - held) return concat("its chunks hold more than its ", numel, " elements");
    held += more;
  }
  if (held != numel) return concat("its chunks hold ", held, " of its ", numel, " elements");
  return overlap_problem(tensor);
}

// Each byte behind a file's head lies in exactly one chunk.
std::string file_problem(const Manifest& manifest) {
  std::map<std::string_view, std::vector<const ChunkRecord*>> of_file;
  for (const TensorRecord& tensor : manifest.tensors)
    for (const ChunkRecord& chunk : tensor.chunks) of_file[chunk.file].push_back(&chunk);
  for (const FileRecord& file : manifest.files) {
    auto& chunks = of_file[file.name];
    std::ranges::sort(chunks, {}, &ChunkRecord::offset);
    int64_t end = file.head_bytes;
    for (const ChunkRecord* chunk : chunks) {
      if (chunk->offset != end)
        return concat("file ", file.name, ": a chunk begins at ", chunk->offset,
                      ", the bytes before it end at ", end);
      end += chunk->bytes;
    }
    if (end != file.bytes)
      return concat("file ", file.name, ": ", end, " of ", file.bytes, " bytes are accounted for");
  }
  return "";
}

template <class Records>
std::string name_problem(const Records& records, const char* what) {
  for (size_t i = 1; i < records.size(); ++i)
    if (!(records[i - 1].name < records[i].name))
      return concat(what, " ", records[i].name, " occurs twice or out of order");
  return "";
}

Json text_of(const FileRecord& file) {
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"head_bytes", file.head_bytes},
          {"head_crc32c", hex(file.head_crc32c, 8)}};
}

Json text_of(const ChunkRecord& chunk) {
  Json slice = Json::array();
  for (const auto& ranges : chunk.slice.dims) {
    Json dim = Json::array();
    for (const Range& range : ranges) dim.push_back(range.begin), dim.push_back(range.end);
    slice.push_back(std::move(dim));
  }
  std::string crc;
  for (uint32_t value : chunk.crc32c) crc += hex(value, 8);
  return {{"file", chunk.file},
          {"offset", chunk.offset},
          {"bytes", chunk.bytes},
          {"slice", std::move(slice)},
          {"crc32c", std::move(crc)}};
}

Json text_of(const TensorRecord& tensor) {
  Json chunks = Json::array();
  for (const ChunkRecord& chunk : tensor.chunks) chunks.push_back(text_of(chunk));
  return {{"name", tensor.name},
          {"kind", tensor.kind},
          {"dtype", safetensors_name(tensor.dtype)},
          {"shape", tensor.shape},
          {"chunks", std::move(chunks)}};
}

// One record a line, so that a person can read it and two manifests can be compared.
template <class Records>
std::string lines_of(const Records& records) {
  std::string text = "[";
  for (size_t i = 0; i < records.size(); ++i)
    text += (i ? ",\n  " : "\n  ") + text_of(records[i]).dump();
  return text + "]";
}

std::string text_of(const Records& records) {
  return concat("\"files\": ", lines_of(records.files),
                ",\n \"tensors\": ", lines_of(records.tensors));
}

std::vector<uint32_t> parse_checksums(const std::string& text) {
  if (text.size() % 8 != 0) throw BadJson("crc32c must have 8 digits a block");
  std::vector<uint32_t> values;
  values.reserve(text.size() / 8);
  for (size_t at = 0; at < text.size(); at += 8) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + at + 8, value, 16);
    if (error != std::errc() || end != text.data() + at + 8)
      throw BadJson("crc32c has a digit that is none");
    values.push_back(value);
  }
  return values;
}

FileRecord parse_file(const Json& json) {
  JsonObject object(json);
  FileRecord file;
  file.name = object.text("name");
  file.bytes = object.count("bytes");
  file.head_bytes = object.count("head_bytes");
  const auto checksum = parse_checksums(object.text("head_crc32c"));
  if (checksum.size() != 1) throw BadJson("head_crc32c must have 8 digits");
  file.head_crc32c = checksum[0];
  object.end();
  return file;
}

ChunkRecord parse_chunk(const Json& json) {
  JsonObject object(json);
  ChunkRecord chunk;
  chunk.file = object.text("file");
  chunk.offset = object.count("offset");
  chunk.bytes = object.count("bytes");
  for (const Json& dim : object.array("slice")) {
    if (!dim.is_array() || dim.size() % 2 != 0) throw BadJson("a slice must be a list of pairs");
    auto& ranges = chunk.slice.dims.emplace_back();
    for (size_t i = 0; i < dim.size(); i += 2)
      ranges.push_back({count_of(dim[i], "slice"), count_of(dim[i + 1], "slice")});
  }
  chunk.crc32c = parse_checksums(object.text("crc32c"));
  object.end();
  return chunk;
}

TensorRecord parse_tensor(const Json& json) {
  JsonObject object(json);
  TensorRecord tensor;
  tensor.name = object.text("name");
  tensor.kind = object.text("kind");
  const std::string dtype = object.text("dtype");
  const auto parsed = parse_dtype(dtype);
  if (!parsed || safetensors_name(*parsed) != dtype)
    throw BadJson("dtype " + dtype + " is unknown");
  tensor.dtype = *parsed;
  for (const Json& extent : object.array("shape"))
    tensor.shape.push_back(count_of(extent, "shape"));
  for (const Json& chunk : object.array("chunks")) tensor.chunks.push_back(parse_chunk(chunk));
  object.end();
  return tensor;
}

CheckpointInfo parse_info(JsonObject& object) {
  CheckpointInfo info;
  info.step = object.count("step");
  info.samples = object.count("samples");
  info.tokens = object.count("tokens");
  const Json& seed = object.take("seed");
  if (!seed.is_number_unsigned()) throw BadJson("seed must be a whole number");
  info.seed = seed.get<uint64_t>();
  info.recipe = object.text("recipe");
  info.layout = object.text("layout");
  info.parent = object.text("parent");
  info.software = object.texts("software");
  for (const auto& [name, value] : object.object("metrics").items()) {
    if (!value.is_number()) throw BadJson("metric " + name + " must be a number");
    info.metrics[name] = value.get<double>();
  }
  info.extra = object.texts("extra");
  return info;
}

Records parse_records(JsonObject& object) {
  Records records;
  records.block_bytes = object.count("block_bytes");
  for (const Json& file : object.array("files")) records.files.push_back(parse_file(file));
  for (const Json& tensor : object.array("tensors"))
    records.tensors.push_back(parse_tensor(tensor));
  return records;
}

Manifest parse_body(std::string_view text) {
  const Json json = parse_json(text);
  JsonObject object(json);
  if (object.text("format") != kFormat) throw BadJson("its format is not trireme-checkpoint");
  const int64_t version = object.count("version");
  TRIREME_CHECK(version == kManifestVersion, "its format is version ", version,
                ", this program reads version ", kManifestVersion,
                "\nnext: use the release of Trireme that wrote it, or a newer one");
  CheckpointInfo info = parse_info(object);
  Manifest manifest{parse_records(object), std::move(info)};
  object.text("digest");
  object.end();
  return manifest;
}

template <class Records>
auto* find_by_name(const Records& records, std::string_view name) {
  const auto at = std::ranges::lower_bound(records, name, {},
                                           [](const auto& r) { return std::string_view(r.name); });
  return at != records.end() && at->name == name ? &*at : nullptr;
}

}  // namespace

std::string slice_problem(const Slice& slice, const Shape& shape) {
  if (slice.dims.size() != shape.size())
    return concat("slice ", to_string(slice), " does not fit shape ", to_string(shape));
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    int64_t end = 0;
    for (const Range& range : slice.dims[dim]) {
      if (range.begin < end || range.end < range.begin || range.end > shape[dim])
        return concat("slice ", to_string(slice), " does not fit shape ", to_string(shape));
      end = range.end;
    }
  }
  return "";
}

bool valid_kind(std::string_view kind) {
  return !kind.empty() &&
         std::ranges::all_of(kind, [](char c) { return c == '_' || ('a' <= c && c <= 'z'); });
}

const TensorRecord* Manifest::find(std::string_view name) const {
  return find_by_name(tensors, name);
}

const FileRecord* Manifest::find_file(std::string_view name) const {
  return find_by_name(files, name);
}

std::string problem_of(const Manifest& manifest) {
  if (manifest.block_bytes < 8 || manifest.block_bytes % 8 != 0 ||
      manifest.block_bytes > int64_t{1} << 30)
    return concat("block_bytes = ", manifest.block_bytes, " is no multiple of 8 up to 2^30");
  if (auto problem = name_problem(manifest.files, "file"); !problem.empty()) return problem;
  if (auto problem = name_problem(manifest.tensors, "tensor"); !problem.empty()) return problem;
  for (const FileRecord& file : manifest.files) {
    if (!plain_name(file.name))
      return concat("file name ", Json(file.name).dump(), " is not plain");
    if (file.head_bytes > file.bytes)
      return concat("file ", file.name, " has a head of ", file.head_bytes, " bytes in ",
                    file.bytes);
  }
  for (const TensorRecord& tensor : manifest.tensors)
    if (auto problem = tensor_problem(tensor, manifest); !problem.empty())
      return concat("tensor ", tensor.name, ": ", problem);
  return file_problem(manifest);
}

std::string format_manifest(Manifest& manifest) {
  std::ranges::sort(manifest.files, {}, &FileRecord::name);
  std::ranges::sort(manifest.tensors, {}, &TensorRecord::name);
  const std::string problem = problem_of(manifest);
  TRIREME_ASSERT(problem.empty(), "a checkpoint is not complete: ", problem);
  const CheckpointInfo& info = manifest.info;
  for (const auto& [name, value] : info.metrics)
    TRIREME_ASSERT(std::isfinite(value), "metric ", name, " = ", value);
  std::string text = concat("{\"format\": \"", kFormat, "\", \"version\": ", kManifestVersion);
  const auto field = [&](const char* name, const Json& value) {
    text += concat(",\n \"", name, "\": ", value.dump());
  };
  try {
    field("step", info.step);
    field("samples", info.samples);
    field("tokens", info.tokens);
    field("seed", info.seed);
    field("recipe", info.recipe);
    field("layout", info.layout);
    field("parent", info.parent);
    field("software", Json(info.software));
    field("metrics", Json(info.metrics));
    field("extra", Json(info.extra));
    field("block_bytes", manifest.block_bytes);
    text += ",\n " + text_of(manifest);
  } catch (const nlohmann::json::exception&) {
    throw InputError("cannot write the manifest: a name or the recipe is not UTF-8");
  }
  return text + digest_line(text);
}

Manifest parse_manifest(std::string_view text, const std::string& path) {
  const auto fail = [&](const std::string& what) {
    throw DamagedError(concat(path, " is damaged: ", what));
  };
  const size_t line = kDigestKey.size() + kDigestDigits + kDigestEnd.size();
  if (text.size() < line) fail(concat("it has ", text.size(), " bytes and no digest"));
  const std::string_view body = text.substr(0, text.size() - line);
  if (text.substr(body.size()) != digest_line(body)) fail("it does not fit its digest");
  try {
    Manifest manifest = parse_body(text);
    if (const auto problem = problem_of(manifest); !problem.empty()) fail(problem);
    return manifest;
  } catch (const BadJson& error) {
    fail(error.what());
  } catch (const InputError& error) {
    throw InputError(concat("cannot read ", path, ": ", error.what()));
  }
  TRIREME_ASSERT(false, "unreachable");
}

std::string serialize_records(const Records& records) {
  return concat("{\"block_bytes\": ", records.block_bytes, ", ", text_of(records), "}");
}

Records parse_records(std::string_view text) {
  try {
    const Json json = parse_json(text);
    JsonObject object(json);
    Records records = parse_records(object);
    object.end();
    return records;
  } catch (const BadJson& error) {
    TRIREME_ASSERT(false, "a rank's records are no records: ", error.what());
  }
}

}  // namespace trireme
