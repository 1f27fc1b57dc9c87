// A file system in memory that knows which of its bytes and names are durable.
//
// It is as forgetful as POSIX allows: written bytes live until a crash unless the file was synced,
// and names (of new files, removed ones, renamed ones) unless their directory was. crash() gives
// what a machine might find after a power loss. Behaves like a disk otherwise: errno codes, O_EXCL.
// Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "state/storage.h"

namespace trireme {

class MemoryStorage final : public Storage {
 public:
  MemoryStorage();
  ~MemoryStorage() override;

  enum class Unsynced { lost, kept, mixed };

  // A copy of what is there after a crash at this moment. Of the writes and name changes that were
  // not synced, all are lost, all are kept, or each one is by a coin; with `mixed` a write may also
  // be torn: only its first bytes are kept. `seed` names the coins.
  std::unique_ptr<MemoryStorage> crash(Unsynced unsynced, uint64_t seed = 0) const;

  // The bytes of a file, to damage them.
  std::string content(const fs::path& path) const;
  void set_content(const fs::path& path, std::string content);  // makes it; durable

  std::unique_ptr<WriteFile> create(const fs::path& path) override;
  std::unique_ptr<ReadFile> open(const fs::path& path) override;
  void make_directory(const fs::path& path) override;
  void rename(const fs::path& from, const fs::path& to) override;
  void remove(const fs::path& path) override;
  std::optional<std::vector<StorageEntry>> list(const fs::path& directory) override;
  void sync_directory(const fs::path& path) override;
  int64_t free_bytes(const fs::path& directory) override;

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;  // an open or renamed-over file outlives its name
  class Writer;
  class Reader;

  NodePtr find(const fs::path& path) const;  // null if missing
  NodePtr parent_of(const fs::path& path, std::string_view operation) const;

  mutable std::mutex mutex_;
  NodePtr root_;  // guarded by mutex_, with everything below it
};

}  // namespace trireme
