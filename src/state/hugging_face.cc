#include "state/hugging_face.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/json.h"
#include "state/convert.h"
#include "state/retention.h"
#include "state/safetensors.h"
#include "state/store.h"
#include "state/tensor_stream.h"
#include "state/torch_file.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

// How a directory may hold its weights, the form that we write first: one file, or several with an
// index.
struct Form {
  const char *whole, *index;
  bool pickled;  // torch.save()'s files
};
constexpr Form kForms[] = {{"model.safetensors", "model.safetensors.index.json", false},
                           {"pytorch_model.bin", "pytorch_model.bin.index.json", true}};
constexpr std::array kAttached = {
    "config.json",     "generation_config.json",  "tokenizer.json",    "tokenizer_config.json",
    "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",      "chat_template.jinja"};
constexpr int64_t kMaxIndexBytes = 100'000'000;

bool is_file(Storage& storage, const fs::path& path) {
  try {
    storage.open(path);
    return true;
  } catch (const StorageError& error) {
    if (error.code() == ENOENT || error.code() == ENOTDIR || error.code() == EISDIR ||
        error.code() == EINVAL)
      return false;
    throw;
  }
}

std::string form_names() {
  std::string names;
  for (const Form& form : kForms)
    names += concat(names.empty() ? "" : ", ", form.whole, " or ", form.index);
  return names;
}

bool is_pickled(const fs::path& file) {
  return file.extension() == ".bin" || file.extension() == ".pt" || file.extension() == ".pth";
}

// Tensor name to file name, as the index has it.
std::map<std::string, std::string> read_index(Storage& storage, const fs::path& path) {
  const auto wrong = [&] {
    return InputError(concat("cannot read ", path.string(),
                             ": expected {\"weight_map\": {tensor: file in the same directory}}"));
  };
  const Json json = parse_json<Json>(read_text(storage, path, kMaxIndexBytes), path.string());
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object())
    throw wrong();
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string() || tensor.size() > 400) throw wrong();
    const auto name = file.get<std::string>();
    if (name.empty() || name.size() > 255 || fs::path(name).filename() != name || name == "..")
      throw wrong();
    map[tensor] = name;
  }
  return map;
}

struct Files {
  Manifest manifest;
  Checkpoint::OpenedFiles opened;           // those that the storage does not read
  std::unique_ptr<TorchFiles> torch_files;  // null until one is needed
};

void add_file(Storage& storage, const fs::path& directory, const std::string& name, bool pickled,
              Files& files) {
  if (pickled && !files.torch_files) files.torch_files = std::make_unique<TorchFiles>();
  auto file = pickled ? files.torch_files->open(directory / name) : storage.open(directory / name);
  Manifest& manifest = files.manifest;
  const auto header = read_safetensors_header(*file, (directory / name).string());
  for (const SafetensorsEntry& entry : header.entries) {
    TensorRecord tensor{entry.name, "weight", entry.dtype, entry.shape, {}};
    if (entry.numel() > 0)
      tensor.chunks.push_back({name, entry.offset, entry.nbytes(), Slice::whole(entry.shape), {}});
    manifest.tensors.push_back(std::move(tensor));
  }
  manifest.files.push_back({name, file->bytes(), header.bytes, 0});
  if (pickled) files.opened[name] = std::move(file);
}

void check_index(const std::map<std::string, std::string>& index, const Manifest& manifest,
                 const fs::path& path) {
  std::set<std::string_view> held;
  for (const TensorRecord& tensor : manifest.tensors) {
    TRIREME_CHECK(held.insert(tensor.name).second, "tensor ", tensor.name, " lies in two files of ",
                  path.string());
    TRIREME_CHECK(index.contains(tensor.name), "tensor ", tensor.name, " lies in the files beside ",
                  path.string(), ", which does not name it");
  }
  for (const auto& [name, file] : index)
    TRIREME_CHECK(held.contains(name), path.string(), " says that tensor ", name, " lies in ", file,
                  ", where it is not");
}

std::vector<const TensorRecord*> weights_of(const Checkpoint& checkpoint) {
  std::vector<const TensorRecord*> weights;
  for (const TensorRecord& tensor : checkpoint.tensors())
    if (tensor.kind == "weight") weights.push_back(&tensor);
  TRIREME_CHECK(!weights.empty(), checkpoint.path().string(), " holds no weights");
  return weights;
}

Attachments attachments_of(const Checkpoint& checkpoint) {
  Attachments attached;
  for (const std::string& name : checkpoint.attachments())
    attached[name] = checkpoint.attachment(name);
  return attached;
}

DType exported_dtype(const TensorRecord& tensor, const ExportOptions& options) {
  return options.dtype && is_floating(tensor.dtype) ? *options.dtype : tensor.dtype;
}

void write_shard(const Checkpoint& from, Storage& storage, const fs::path& path,
                 std::span<const TensorRecord* const> tensors, const ExportOptions& options) {
  std::vector<SafetensorsEntry> entries;
  for (const TensorRecord* tensor : tensors)
    entries.push_back({{tensor->name, tensor->shape, exported_dtype(*tensor, options)}, 0});
  const auto file = storage.create(path);
  file->write(safetensors_head(entries));
  std::vector<std::byte> block(static_cast<size_t>(kBlockBytes));
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorStream stream(from, *tensors[i], entries[i].dtype);
    while (stream.bytes_left() > 0) {
      const auto n = static_cast<size_t>(std::min(kBlockBytes, stream.bytes_left()));
      stream.read(std::span(block).first(n));
      file->write(std::span(block).first(n));
    }
  }
  file->sync();
  file->close();
}

void write_text(Storage& storage, const fs::path& path, std::string_view text) {
  const auto file = storage.create(path);
  file->write(text);
  file->sync();
  file->close();
}

// Consecutive weights, so many in a file that it stays within the limit.
std::vector<std::span<const TensorRecord* const>> shards_of(
    std::span<const TensorRecord* const> weights, const ExportOptions& options) {
  std::vector<std::span<const TensorRecord* const>> shards;
  size_t begin = 0;
  int64_t nbytes = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const int64_t more =
        numel_of(weights[i]->shape) * bytes_of(exported_dtype(*weights[i], options));
    if (i > begin && nbytes + more > options.shard_bytes) {
      shards.push_back(weights.subspan(begin, i - begin));
      begin = i;
      nbytes = 0;
    }
    nbytes += more;
  }
  shards.push_back(weights.subspan(begin));
  return shards;
}

std::string shard_name(size_t index, size_t count) {
  std::ostringstream name;
  name << "model-" << std::setfill('0') << std::setw(5) << index + 1 << "-of-" << std::setw(5)
       << count << ".safetensors";
  return std::move(name).str();
}

void write_weights(const Checkpoint& from, Storage& storage, const fs::path& directory,
                   const ExportOptions& options) {
  const auto weights = weights_of(from);
  const auto shards = shards_of(weights, options);
  if (shards.size() == 1) {
    write_shard(from, storage, directory / kForms[0].whole, shards[0], options);
    return;
  }
  Json map = Json::object();
  int64_t total = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i, shards.size());
    write_shard(from, storage, directory / name, shards[i], options);
    for (const TensorRecord* tensor : shards[i]) {
      map.push_back({tensor->name, name});
      total += numel_of(tensor->shape) * bytes_of(exported_dtype(*tensor, options));
    }
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  write_text(storage, directory / kForms[0].index, index.dump(2) + "\n");
}

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::float64:
      return "float64";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float16:
      return "float16";
    default:
      return "float32";
  }
}

// config.json with its dtype, under the name that it has there.
std::string with_dtype(const std::string& config, DType dtype) {
  Json json = parse_json<Json>(config, "the checkpoint's config.json");
  TRIREME_CHECK(json.is_object(), "the checkpoint's config.json is no JSON object");
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = torch_name(dtype);
  return json.dump(2) + "\n";
}

}  // namespace

Checkpoint open_hugging_face(Storage& storage, const fs::path& path) {
  Files files;
  Manifest& manifest = files.manifest;
  manifest.block_bytes = kBlockBytes;
  fs::path directory = path;
  const auto form = std::ranges::find_if(kForms, [&](const Form& f) {
    return is_file(storage, path / f.index) || is_file(storage, path / f.whole);
  });
  if (is_file(storage, path)) {
    directory = path.parent_path();
    add_file(storage, directory, path.filename().string(), is_pickled(path), files);
  } else if (form == std::end(kForms)) {
    throw InputError(concat(path.string(), " holds no weights: expected ", form_names()));
  } else if (is_file(storage, path / form->index)) {
    const auto index = read_index(storage, path / form->index);
    std::set<std::string> names;
    for (const auto& [tensor, file] : index) names.insert(file);
    for (const std::string& name : names) {
      TRIREME_CHECK(is_file(storage, path / name), (path / form->index).string(), " names ", name,
                    ", which is missing");
      add_file(storage, path, name, form->pickled, files);
    }
    check_index(index, manifest, path / form->index);
  } else {
    add_file(storage, path, form->whole, form->pickled, files);
  }
  if (directory == path)
    for (const char* name : kAttached)
      if (is_file(storage, path / name)) {
        const int64_t nbytes = storage.open(path / name)->bytes();
        manifest.files.push_back({name, nbytes, nbytes, 0});
      }
  std::ranges::sort(manifest.files, {}, &FileRecord::name);
  std::ranges::sort(manifest.tensors, {}, &TensorRecord::name);
  return Checkpoint::of_manifest(storage, directory, std::move(manifest), false,
                                 std::move(files.opened));
}

Checkpoint open_tensors(Storage& storage, const fs::path& given) {
  const fs::path path = given.has_filename() ? given : given.parent_path();
  const auto entries = storage.list(path);
  const auto has = [&](std::string_view name) {
    return entries && std::ranges::any_of(*entries, [&](const auto& e) { return e.name == name; });
  };
  // By its name, so that one that lost its manifest is not taken for something else.
  const auto name = parse_checkpoint_name(path.filename().string());
  TRIREME_CHECK(!entries || !name || name->state == CheckpointName::State::committed, path.string(),
                " is not committed: it is being written or removed, or a crash left it"
                "\nnext: `ckpt ls` lists those that are");
  if (has(kManifestName) || (entries && name)) return Checkpoint::open(storage, path);
  if (has("checkpoints") || (entries && std::ranges::any_of(*entries, [](const auto& entry) {
                               return parse_checkpoint_name(entry.name).has_value();
                             }))) {
    const fs::path checkpoints = has("checkpoints") ? path / "checkpoints" : path;
    const auto newest = newest_committed(storage, checkpoints);
    TRIREME_CHECK(newest, checkpoints.string(), " holds no committed checkpoint that is in order",
                  "\nnext: `ckpt ls` lists what is there");
    return Checkpoint::open(storage, *newest);
  }
  const auto has_form = [&](const Form& form) { return has(form.whole) || has(form.index); };
  if (std::ranges::any_of(kForms, has_form) || (!entries && is_file(storage, path)))
    return open_hugging_face(storage, path);
  throw InputError(concat(path.string(), entries ? " holds no model" : " does not exist",
                          ": expected a run, its checkpoints, one checkpoint (", kManifestName,
                          "), a Hugging Face directory (", form_names(), ") or a file of tensors"));
}

void export_hugging_face(const Checkpoint& from, Storage& storage, const fs::path& target,
                         const ExportOptions& options) {
  Attachments attached = attachments_of(from);
  const auto config = attached.find("config.json");
  TRIREME_CHECK(config != attached.end(), "cannot export ", from.path().string(),
                ": it holds no config.json, which says what the weights are");
  if (options.dtype) config->second = with_dtype(config->second, *options.dtype);
  const PendingCheckpoint pending = begin_checkpoint_at(storage, target);
  try {
    write_weights(from, storage, pending.partial, options);
    for (const auto& [name, text] : attached) write_text(storage, pending.partial / name, text);
    storage.sync_directory(pending.partial);
    storage.rename(pending.partial, pending.target);
    storage.sync_directory(pending.target.parent_path());
  } catch (const Error&) {
    abandon_checkpoint(storage, pending);
    throw;
  }
}

void import_weights(const Checkpoint& from, Storage& storage, const fs::path& target,
                    const std::map<std::string, std::string>& software) {
  const auto weights = weights_of(from);
  const Attachments attached = attachments_of(from);
  const PendingCheckpoint pending = begin_checkpoint_at(storage, target);
  try {
    RankWriter writer(storage, pending.partial, 0, 1);
    for (const TensorRecord* tensor : weights)
      writer.add(
          {.name = tensor->name,
           .kind = "weight",
           .dtype = tensor->dtype,
           .shape = tensor->shape,
           .slice = Slice::whole(tensor->shape),
           .data = {},
           .produce = [stream = std::make_shared<TensorStream>(from, *tensor, tensor->dtype)](
                          int64_t, std::span<std::byte> out) { stream->read(out); }});
    CheckpointInfo info;
    info.software = software;
    commit_checkpoint(storage, pending, {writer.finish()}, info, attached);
  } catch (const Error&) {
    abandon_checkpoint(storage, pending);
    throw;
  }
}

}  // namespace trireme
