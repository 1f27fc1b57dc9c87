#include "state/fault_storage.h"

#include <cerrno>

namespace trireme {

class FaultStorage::Writer final : public WriteFile {
 public:
  Writer(FaultStorage& owner, std::unique_ptr<WriteFile> below, fs::path path)
      : owner_(owner), below_(std::move(below)), path_(std::move(path)) {}

  void write(std::span<const std::byte> data) override {
    if (owner_.hit()) {
      if (owner_.fault_.half) below_->write(data.first(data.size() / 2));
      owner_.fail("write", path_);
    }
    below_->write(data);
  }

  void sync() override {
    owner_.count("sync", path_);
    if (!owner_.fault_.ignore_file_syncs) below_->sync();
  }

  void close() override {
    owner_.count("close", path_);
    below_->close();
  }

 private:
  FaultStorage& owner_;
  std::unique_ptr<WriteFile> below_;
  fs::path path_;
};

bool FaultStorage::hit(bool frees_space) {
  const int64_t index = count_++;
  if (frees_space && (fault_.code == ENOSPC || fault_.code == EDQUOT)) return false;
  const bool goes_on = fault_.code == 0 || fault_.for_good;
  return fault_.at >= 0 && (goes_on ? index >= fault_.at : index == fault_.at);
}

void FaultStorage::fail(std::string_view operation, const fs::path& path) const {
  if (fault_.code == 0) throw PowerCut{};
  throw StorageError(operation, path, fault_.code);
}

std::unique_ptr<WriteFile> FaultStorage::create(const fs::path& path) {
  count("create", path);
  return std::make_unique<Writer>(*this, below_.create(path), path);
}

std::unique_ptr<ReadFile> FaultStorage::open(const fs::path& path) { return below_.open(path); }

void FaultStorage::make_directory(const fs::path& path) {
  count("make the directory", path);
  below_.make_directory(path);
}

void FaultStorage::rename(const fs::path& from, const fs::path& to) {
  count("rename to", to);
  below_.rename(from, to);
}

void FaultStorage::remove(const fs::path& path) {
  if (hit(true)) fail("remove", path);
  below_.remove(path);
}

std::optional<std::vector<StorageEntry>> FaultStorage::list(const fs::path& directory) {
  return below_.list(directory);
}

void FaultStorage::sync_directory(const fs::path& path) {
  count("sync", path);
  if (!fault_.ignore_directory_syncs) below_.sync_directory(path);
}

int64_t FaultStorage::free_bytes(const fs::path& directory) { return below_.free_bytes(directory); }

}  // namespace trireme
