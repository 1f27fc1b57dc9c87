// Hugging Face's model directories, in and out, and the paths that a user may name.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "state/checkpoint.h"
#include "state/storage.h"

namespace trireme {

// A directory with model.safetensors or pytorch_model.bin, or with shards of either and their
// index, or one such file, as a checkpoint of weights. Such files carry no checksums, and none are
// checked; their headers are, and the index has to name exactly what the shards hold. Configuration
// and tokenizer files of the usual names are its attachments. InputError if there is no such model.
Checkpoint open_hugging_face(Storage& storage, const fs::path& path);

// Whatever the user means by `path`: a checkpoint, a run or a directory of checkpoints (the newest
// committed one), a Hugging Face directory, a file of tensors. InputError says what was looked
// for.
Checkpoint open_tensors(Storage& storage, const fs::path& path);

struct ExportOptions {
  std::optional<DType> dtype;           // of the weights; nullopt: as they are stored
  int64_t shard_bytes = 5'000'000'000;  // a larger model becomes several files with an index
};

// Writes the weights, whole, and the attachments as a directory that
// transformers.AutoModelForCausalLM.from_pretrained loads. It appears at once or not at all;
// InputError if `target` exists or the checkpoint has no config.json. With a dtype, config.json
// names it.
void export_hugging_face(const Checkpoint& from, Storage& storage, const fs::path& target,
                         const ExportOptions& options);

// Writes any readable model as a checkpoint directory of one rank: weights and attachments.
void import_weights(const Checkpoint& from, Storage& storage, const fs::path& target,
                    const std::map<std::string, std::string>& software);

}  // namespace trireme
