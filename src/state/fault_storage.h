// A layer over a Storage that numbers its operations and, at one of them, cuts the power or fails.
//
// Counted are the operations that change something: create, write, sync, close, make_directory,
// rename, remove, sync_directory. Threads: any; the numbers then depend on their order.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "state/storage.h"

namespace trireme {

// The power went off. No Error, so that nothing between here and the test takes it for one.
struct PowerCut {};

class FaultStorage final : public Storage {
 public:
  struct Fault {
    int64_t at = -1;        // the operation that is hit, from 0; -1: none
    int code = 0;           // throw StorageError with this errno, once; 0: cut the power, for good
    bool for_good = false;  // the error stays: a full disk
    bool half = false;      // a write that is hit writes its first half before
    // A store that forgot them: the operation is counted and does nothing.
    bool ignore_file_syncs = false, ignore_directory_syncs = false;
  };
  FaultStorage(Storage& below, Fault fault) : below_(below), fault_(fault) {}

  int64_t operations() const { return count_; }

  std::unique_ptr<WriteFile> create(const fs::path& path) override;
  std::unique_ptr<ReadFile> open(const fs::path& path) override;
  void make_directory(const fs::path& path) override;
  void rename(const fs::path& from, const fs::path& to) override;
  void remove(const fs::path& path) override;
  std::optional<std::vector<StorageEntry>> list(const fs::path& directory) override;
  void sync_directory(const fs::path& path) override;
  int64_t free_bytes(const fs::path& directory) override;

 private:
  class Writer;
  bool hit(bool frees_space = false);  // counts one operation
  [[noreturn]] void fail(std::string_view operation, const fs::path& path) const;
  void count(std::string_view operation, const fs::path& path) {
    if (hit()) fail(operation, path);
  }

  Storage& below_;
  Fault fault_;
  std::atomic<int64_t> count_{0};
};

}  // namespace trireme
