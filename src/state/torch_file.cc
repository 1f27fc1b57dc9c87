#include "state/torch_file.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/python_worker.h"
#include "state/safetensors.h"
#include "state/torch_file.py.h"

namespace trireme {
namespace {

constexpr auto kTimeout = std::chrono::minutes(10);  // of loading a file that cannot be mapped
constexpr size_t kBytesAtOnce = size_t{64} << 20;

InputError unreadable(const fs::path& path, const std::string& reason) {
  return InputError(concat("cannot read ", path.string(), " as a file of torch.save(): ", reason));
}

class TorchFile final : public ReadFile {
 public:
  TorchFile(std::shared_ptr<PythonWorker> worker, fs::path path,
            std::vector<SafetensorsEntry> entries)
      : worker_(std::move(worker)),
        path_(std::move(path)),
        entries_(std::move(entries)),
        head_(safetensors_head(entries_)) {
    bytes_ = static_cast<int64_t>(head_.size());
    for (const SafetensorsEntry& entry : entries_) bytes_ += entry.nbytes();
  }

  int64_t bytes() const override { return bytes_; }

  int64_t read(int64_t offset, std::span<std::byte> out) const override {
    const int64_t end = std::min(bytes_, offset + static_cast<int64_t>(out.size()));
    int64_t at = offset;
    const auto part = [&](int64_t part_end) {
      return out.subspan(static_cast<size_t>(at - offset), static_cast<size_t>(part_end - at));
    };
    if (const auto head = static_cast<int64_t>(head_.size()); at < std::min(head, end)) {
      const auto target = part(std::min(head, end));
      std::memcpy(target.data(), head_.data() + at, target.size());
      at += static_cast<int64_t>(target.size());
    }
    const auto after = std::ranges::upper_bound(entries_, at, {}, &SafetensorsEntry::offset);
    for (auto entry = after == entries_.begin() ? after : after - 1; at < end; ++entry) {
      const int64_t entry_end = std::min(end, entry->offset + entry->nbytes());
      for (; at < entry_end;) {
        const auto target = part(entry_end);
        at += ask(*entry, at - entry->offset, target.first(std::min(target.size(), kBytesAtOnce)));
      }
    }
    return std::max<int64_t>(at - offset, 0);
  }

 private:
  int64_t ask(const SafetensorsEntry& entry, int64_t offset, std::span<std::byte> out) const {
    const auto reply = worker_->ask({{"path", path_.string()},
                                     {"tensor", entry.name},
                                     {"offset", offset},
                                     {"bytes", out.size()}},
                                    out);
    if (!reply.ok()) throw unreadable(path_, concat("tensor ", entry.name, ": ", reply.reason()));
    return static_cast<int64_t>(out.size());
  }

  std::shared_ptr<PythonWorker> worker_;
  fs::path path_;
  std::vector<SafetensorsEntry> entries_;
  std::string head_;
  int64_t bytes_ = 0;
};

}  // namespace

TorchFiles::TorchFiles()
    : worker_(std::make_shared<PythonWorker>(
          PythonWorker::Options{.script = kTorchFilePy, .timeout = kTimeout})) {}
TorchFiles::~TorchFiles() = default;

std::unique_ptr<ReadFile> TorchFiles::open(const fs::path& path) {
  auto reply = worker_->ask({{"open", fs::absolute(path).string()}});
  if (!reply.ok()) throw unreadable(path, reply.reason());
  std::vector<SafetensorsEntry> entries;
  for (const nlohmann::json& tensor : reply.value()["tensors"]) {
    SafetensorsEntry& entry = entries.emplace_back();
    entry.name = tensor["name"].get<std::string>();
    entry.shape = tensor["shape"].get<Shape>();
    const auto dtype = parse_dtype(tensor["dtype"].get<std::string>());
    TRIREME_ASSERT(dtype, tensor.dump());
    entry.dtype = *dtype;
  }
  return std::make_unique<TorchFile>(worker_, fs::absolute(path), std::move(entries));
}

}  // namespace trireme
