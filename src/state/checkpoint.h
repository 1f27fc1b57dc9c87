// Reading a committed checkpoint: any slice of any tensor, whoever wrote it and on whatever layout.
//
// Only the blocks that the slice touches are read, and each one's checksum is checked before its
// bytes are handed out. Bytes are read, not mapped: a file that is cut or a disk that fails under
// the reader is an error with a name and not a SIGBUS.
//
// Threads: any number may read at once. The checkpoint keeps the files that it touched open, so
// they stay readable when it is pruned meanwhile. Cost of read(): the bytes touched, once through
// the cache; no memory beyond a block. Errors: DamagedError names file and tensor; InputError for
// what was asked wrongly.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "state/damage.h"
#include "state/manifest.h"
#include "state/storage.h"

namespace trireme {

// A tensor that a model expects to find.
struct ExpectedTensor {
  std::string name;
  Shape shape;
};

class Checkpoint {
 public:
  // Reads and checks the manifest, and that each file is there with its size. `storage` outlives
  // it.
  static Checkpoint open(Storage& storage, const fs::path& directory);

  // Files that something else wrote, as this manifest says, which is trusted. Without checksums
  // none are checked. `opened` holds those that are not read through the storage, by name.
  using OpenedFiles = std::map<std::string, std::unique_ptr<ReadFile>, std::less<>>;
  static Checkpoint of_manifest(Storage& storage, const fs::path& directory, Manifest manifest,
                                bool checksummed, OpenedFiles opened = {});

  // The same with other names: `rename` gives each tensor's, nullopt leaves it out. Names stay
  // unique.
  Checkpoint renamed(
      const std::function<std::optional<std::string>(const TensorRecord&)>& rename) &&;

  ~Checkpoint();
  Checkpoint(Checkpoint&&) noexcept;

  const fs::path& path() const;
  const CheckpointInfo& info() const;
  const std::vector<TensorRecord>& tensors() const;  // by name
  const std::vector<FileRecord>& files() const;      // by name
  const TensorRecord* find(std::string_view name) const;
  bool checksummed() const;  // false: Hugging Face's files (hugging_face.h)

  // Fills `out` with the elements of `slice`, row-major, as `dtype`: the stored type, or any of
  // fp64, fp32, bf16, fp16 when the stored one is of these (rounded to nearest even, once).
  // REQUIRES: out.size() = slice.numel() * bytes_of(dtype). After an error `out` is unspecified.
  void read(std::string_view name, const Slice& slice, DType dtype, std::span<std::byte> out) const;

  // The tensors of `kind` are exactly `expected`, with these shapes. InputError names those that
  // are missing, unexpected or of another shape.
  void require(std::span<const ExpectedTensor> expected, std::string_view kind = "weight") const;

  std::vector<std::string> attachments() const;
  std::string attachment(std::string_view name) const;

  // Reads everything and returns what is wrong, a line each, naming the tensors concerned.
  // `progress` is told how many bytes were read so far.
  std::vector<std::string> verify(const std::function<void(int64_t bytes)>& progress = {}) const;

 private:
  struct Open;
  explicit Checkpoint(std::unique_ptr<Open> open);
  std::unique_ptr<Open> open_;
};

}  // namespace trireme
