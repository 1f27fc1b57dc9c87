#include "state/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>

#include "base/checksum.h"
#include "state/convert.h"
#include "state/safetensors.h"

namespace trireme {
namespace {

constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;

// These say that the file itself is gone or broken, unlike missing rights or too many open files.
bool is_damage(const StorageError& error) {
  return error.code() == ENOENT || error.code() == EIO || error.code() == EISDIR ||
         error.code() == EINVAL || error.code() == EFBIG;
}

// "model.norm.weight", or the first one and how many more.
std::string names_in(const Manifest& manifest, const std::string& file) {
  std::string text;
  int64_t more = 0;
  for (const TensorRecord& tensor : manifest.tensors)
    if (std::ranges::any_of(tensor.chunks, [&](const auto& chunk) { return chunk.file == file; })) {
      if (text.empty()) text = tensor.name;
      else ++more;
    }
  if (text.empty()) return "no tensor";
  return more ? concat(text, " and ", more, " more") : text;
}

// Size and place of the files, without opening them.
void check_files(Storage& storage, const fs::path& directory, const Manifest& manifest) {
  std::map<std::string, const StorageEntry*> there;
  const auto entries = storage.list(directory).value_or(std::vector<StorageEntry>());
  for (const StorageEntry& entry : entries) there[entry.name] = &entry;
  for (const FileRecord& file : manifest.files) {
    const auto at = there.find(file.name);
    const auto fail = [&](const std::string& what) {
      throw DamagedError(concat((directory / file.name).string(), " ", what, "; it holds ",
                                names_in(manifest, file.name)));
    };
    if (at == there.end()) fail("is missing");
    if (at->second->type != StorageEntry::Type::file) fail("is no file");
    if (at->second->bytes != file.bytes)
      fail(concat("has ", at->second->bytes, " bytes, ", file.bytes, " were written"));
  }
}

}  // namespace

struct Checkpoint::Open {
  Storage& storage;
  fs::path path;
  Manifest manifest;
  bool checksummed = true;

  std::mutex mutex;
  OpenedFiles opened;  // guarded by mutex

  // The file, its head checked when it is opened for the first time.
  const ReadFile& file(const std::string& name);
  std::unique_ptr<ReadFile> open_file(const FileRecord& record) const;
  std::string read_head(const ReadFile& file, const FileRecord& record) const;
  // Fills `out` with bytes of a file, all of them there.
  void read_exactly(const ReadFile& file, const std::string& name, int64_t offset,
                    std::span<std::byte> out) const;
  // Fills `out` with one block of a chunk and checks it.
  void read_block(const TensorRecord& tensor, const ChunkRecord& chunk, int64_t block,
                  std::span<std::byte> out);
  void read_runs(const TensorRecord& tensor, const ChunkRecord& chunk,
                 const std::vector<CopyRun>& runs, DType dtype, std::span<std::byte> out);
  struct Placed {
    const TensorRecord* tensor;
    const ChunkRecord* chunk;
  };
  // `placed`: what the file holds, in order of its bytes.
  void verify_blocks(const Placed& placed, std::vector<std::string>& problems,
                     const std::function<void(int64_t)>& read);
  void verify_header(const FileRecord& record, const std::vector<Placed>& placed);
};

void Checkpoint::Open::read_exactly(const ReadFile& file, const std::string& name, int64_t offset,
                                    std::span<std::byte> out) const {
  int64_t n = 0;
  try {
    n = file.read(offset, out);
  } catch (const StorageError& error) {
    throw DamagedError(concat(error.what(), "; it holds ", names_in(manifest, name)));
  }
  if (n != static_cast<int64_t>(out.size()))
    throw DamagedError(concat((path / name).string(), " ends at byte ", offset + n, ", ",
                              offset + static_cast<int64_t>(out.size()),
                              " were expected; it holds ", names_in(manifest, name)));
}

std::unique_ptr<ReadFile> Checkpoint::Open::open_file(const FileRecord& record) const {
  std::unique_ptr<ReadFile> file;
  try {
    file = storage.open(path / record.name);
  } catch (const StorageError& error) {
    if (!is_damage(error)) throw;
    throw DamagedError(concat(error.what(), "; it holds ", names_in(manifest, record.name)));
  }
  if (file->bytes() != record.bytes)
    throw DamagedError(concat((path / record.name).string(), " has ", file->bytes(), " bytes, ",
                              record.bytes, " were expected; it holds ",
                              names_in(manifest, record.name)));
  return file;
}

std::string Checkpoint::Open::read_head(const ReadFile& file, const FileRecord& record) const {
  std::string head(static_cast<size_t>(record.head_bytes), '\0');
  read_exactly(file, record.name, 0, std::as_writable_bytes(std::span(head)));
  if (checksummed && crc32c(std::as_bytes(std::span(head))) != record.head_crc32c)
    throw DamagedError(concat((path / record.name).string(),
                              record.head_bytes == record.bytes
                                  ? " does not fit its checksum"
                                  : concat(": its header does not fit its checksum; it holds ",
                                           names_in(manifest, record.name))));
  return head;
}

const ReadFile& Checkpoint::Open::file(const std::string& name) {
  const std::lock_guard lock(mutex);
  const auto at = opened.find(name);
  if (at != opened.end()) return *at->second;
  const FileRecord& record = *manifest.find_file(name);
  auto file = open_file(record);
  if (checksummed) read_head(*file, record);
  return *opened.emplace(name, std::move(file)).first->second;
}

void Checkpoint::Open::read_block(const TensorRecord& tensor, const ChunkRecord& chunk,
                                  int64_t block, std::span<std::byte> out) {
  const int64_t offset = chunk.offset + block * manifest.block_bytes;
  read_exactly(file(chunk.file), chunk.file, offset, out);
  if (!checksummed) return;
  const uint32_t found = crc32c(out), expected = chunk.crc32c[static_cast<size_t>(block)];
  if (found != expected)
    throw DamagedError(concat("tensor ", tensor.name, ", slice ", to_string(chunk.slice),
                              ": bytes ", offset, " to ", offset + static_cast<int64_t>(out.size()),
                              " of ", (path / chunk.file).string(), " have CRC32C ", std::hex,
                              found, ", ", expected, " was written"));
}

// Runs rise in both places, so each block is read once. A block that lies in `out` as a whole is
// read right into it.
void Checkpoint::Open::read_runs(const TensorRecord& tensor, const ChunkRecord& chunk,
                                 const std::vector<CopyRun>& runs, DType dtype,
                                 std::span<std::byte> out) {
  const int64_t width = bytes_of(tensor.dtype), out_width = bytes_of(dtype);
  std::vector<std::byte> buffer;
  int64_t held = -1;  // the block in the buffer
  for (const CopyRun& run : runs) {
    int64_t at = run.from * width, to = run.to * out_width;
    const int64_t end = at + run.numel * width;
    while (at < end) {
      const int64_t block = at / manifest.block_bytes, begin = block * manifest.block_bytes;
      const int64_t block_end = std::min(begin + manifest.block_bytes, chunk.bytes);
      const int64_t n = std::min(end, block_end) - at;
      const int64_t out_n = n / width * out_width;
      const auto target = out.subspan(static_cast<size_t>(to), static_cast<size_t>(out_n));
      if (dtype == tensor.dtype && n == block_end - begin) {
        read_block(tensor, chunk, block, target);
      } else {
        if (block != held) {
          buffer.resize(static_cast<size_t>(block_end - begin));
          read_block(tensor, chunk, block, buffer);
          held = block;
        }
        const std::span source(buffer);
        convert(tensor.dtype,
                source.subspan(static_cast<size_t>(at - begin), static_cast<size_t>(n)), dtype,
                target);
      }
      at += n;
      to += out_n;
    }
  }
}

Checkpoint::Checkpoint(std::unique_ptr<Open> open) : open_(std::move(open)) {}
Checkpoint::~Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

Checkpoint Checkpoint::open(Storage& storage, const fs::path& directory) {
  const fs::path manifest_path = directory / kManifestName;
  std::string text;
  try {
    text = read_text(storage, manifest_path, kMaxManifestBytes);
  } catch (const StorageError& error) {
    if (!is_damage(error)) throw;
    throw DamagedError(concat(directory.string(), " is no checkpoint: ", error.what()));
  }
  Manifest manifest = parse_manifest(text, manifest_path.string());
  check_files(storage, directory, manifest);
  return of_manifest(storage, directory, std::move(manifest), true);
}

Checkpoint Checkpoint::of_manifest(Storage& storage, const fs::path& directory, Manifest manifest,
                                   bool checksummed, OpenedFiles opened) {
  return Checkpoint(std::unique_ptr<Open>(
      new Open{storage, directory, std::move(manifest), checksummed, {}, std::move(opened)}));
}

Checkpoint Checkpoint::renamed(
    const std::function<std::optional<std::string>(const TensorRecord&)>& rename) && {
  std::vector<TensorRecord>& tensors = open_->manifest.tensors;
  std::erase_if(tensors, [&](TensorRecord& tensor) {
    const auto name = rename(tensor);
    if (name) tensor.name = *name;
    return !name;
  });
  std::ranges::sort(tensors, {}, &TensorRecord::name);
  const auto twice = std::ranges::adjacent_find(tensors, {}, &TensorRecord::name);
  TRIREME_ASSERT(twice == tensors.end(), "two tensors are called ", twice->name);
  return Checkpoint(std::move(open_));
}

const fs::path& Checkpoint::path() const { return open_->path; }
const CheckpointInfo& Checkpoint::info() const { return open_->manifest.info; }
const std::vector<TensorRecord>& Checkpoint::tensors() const { return open_->manifest.tensors; }
const std::vector<FileRecord>& Checkpoint::files() const { return open_->manifest.files; }
const TensorRecord* Checkpoint::find(std::string_view name) const {
  return open_->manifest.find(name);
}
bool Checkpoint::checksummed() const { return open_->checksummed; }

void Checkpoint::read(std::string_view name, const Slice& slice, DType dtype,
                      std::span<std::byte> out) const {
  const TensorRecord* tensor = find(name);
  TRIREME_CHECK(tensor, path().string(), " has no tensor ", name);
  TRIREME_CHECK(convertible(tensor->dtype, dtype), "tensor ", name, " of ", path().string(), " is ",
                name_of(tensor->dtype), ", which does not become ", name_of(dtype));
  const auto problem = slice_problem(slice, tensor->shape);
  TRIREME_CHECK(problem.empty(), "tensor ", name, " of ", path().string(), ": ", problem);
  TRIREME_ASSERT(static_cast<int64_t>(out.size()) == slice.numel() * bytes_of(dtype), name, ": ",
                 out.size(), " bytes for slice ", to_string(slice), " of ", name_of(dtype));
  for (const ChunkRecord& chunk : tensor->chunks)
    open_->read_runs(*tensor, chunk, copy_runs(chunk.slice, slice), dtype, out);
}

void Checkpoint::require(std::span<const ExpectedTensor> expected, std::string_view kind) const {
  std::vector<std::string> problems;
  std::set<std::string_view> names;
  for (const ExpectedTensor& tensor : expected) {
    names.insert(tensor.name);
    const TensorRecord* there = find(tensor.name);
    if (!there || there->kind != kind) problems.push_back(concat(tensor.name, " is missing"));
    else if (there->shape != tensor.shape)
      problems.push_back(concat(tensor.name, " is ", to_string(there->shape), " and not ",
                                to_string(tensor.shape)));
  }
  for (const TensorRecord& tensor : tensors())
    if (tensor.kind == kind && !names.contains(tensor.name))
      problems.push_back(concat(tensor.name, " is unexpected"));
  if (problems.empty()) return;
  constexpr size_t kShown = 8;
  std::string text = concat("the ", kind, "s in ", path().string(), " are not the model's: ");
  for (size_t i = 0; i < std::min(problems.size(), kShown); ++i)
    text += (i ? "; " : "") + problems[i];
  if (problems.size() > kShown) text += concat("; and ", problems.size() - kShown, " more");
  throw InputError(text);
}

std::vector<std::string> Checkpoint::attachments() const {
  std::vector<std::string> names;
  for (const FileRecord& file : files())
    if (file.head_bytes == file.bytes) names.push_back(file.name);
  return names;
}

std::string Checkpoint::attachment(std::string_view name) const {
  const FileRecord* file = open_->manifest.find_file(name);
  TRIREME_CHECK(file && file->head_bytes == file->bytes, path().string(), " holds no file ", name);
  return open_->read_head(*open_->open_file(*file), *file);
}

std::vector<std::string> Checkpoint::verify(const std::function<void(int64_t)>& progress) const {
  std::map<std::string_view, std::vector<Open::Placed>> placed;
  for (const TensorRecord& tensor : tensors())
    for (const ChunkRecord& chunk : tensor.chunks) placed[chunk.file].push_back({&tensor, &chunk});
  std::vector<std::string> problems;
  int64_t bytes_read = 0;
  const auto read = [&](int64_t bytes) {
    bytes_read += bytes;
    if (progress) progress(bytes_read);
  };
  for (const FileRecord& record : files()) {
    auto& inside = placed[record.name];
    std::ranges::sort(inside, {}, [](const Open::Placed& p) { return p.chunk->offset; });
    try {
      open_->file(record.name);
      for (const Open::Placed& one : inside) open_->verify_blocks(one, problems, read);
      if (!inside.empty()) open_->verify_header(record, inside);
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  }
  return problems;
}

void Checkpoint::Open::verify_blocks(const Placed& placed, std::vector<std::string>& problems,
                                     const std::function<void(int64_t)>& read) {
  const auto& [tensor, chunk] = placed;
  std::vector<std::byte> buffer;
  for (int64_t at = 0; at < chunk->bytes; at += manifest.block_bytes) {
    buffer.resize(static_cast<size_t>(std::min(manifest.block_bytes, chunk->bytes - at)));
    try {
      read_block(*tensor, *chunk, at / manifest.block_bytes, buffer);
    } catch (const DamagedError& error) {
      problems.emplace_back(error.what());
    }
    read(static_cast<int64_t>(buffer.size()));
  }
}

// The file must say of itself what the manifest says of it.
void Checkpoint::Open::verify_header(const FileRecord& record, const std::vector<Placed>& placed) {
  const auto header = read_safetensors_header(file(record.name), (path / record.name).string());
  size_t next = 0;
  bool fits = true;
  for (const SafetensorsEntry& entry : header.entries) {
    if (entry.numel() == 0) continue;
    fits = fits && next < placed.size() && entry.offset == placed[next].chunk->offset &&
           entry.dtype == placed[next].tensor->dtype &&
           entry.shape == placed[next].chunk->slice.extents();
    ++next;
  }
  if (!fits || next != placed.size())
    throw DamagedError(concat((path / record.name).string(),
                              ": its header and the manifest differ; it holds ",
                              names_in(manifest, record.name)));
}

}  // namespace trireme
