#include "state/memory_storage.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <limits>
#include <map>

#include "base/random.h"

namespace trireme {

// A file or a directory: what is there now, what a crash leaves for sure, and, in order, what may
// or may not survive.
struct MemoryStorage::Node {
  bool directory = false;

  std::string content, durable_content;
  std::vector<std::string> unsynced_writes;  // all appends

  using Names = std::map<std::string, NodePtr>;
  // One atomic change: `removed` (if not empty) goes, `added` (if not empty) names `node`.
  struct Change {
    std::string removed, added;
    NodePtr node;
    void apply(Names& names) const {
      if (!removed.empty()) names.erase(removed);
      if (!added.empty()) names[added] = node;
    }
  };
  Names names, durable_names;
  std::vector<Change> unsynced_changes;

  void change(Change change) {
    change.apply(names);
    unsynced_changes.push_back(std::move(change));
  }
};

class MemoryStorage::Writer final : public WriteFile {
 public:
  Writer(std::mutex& mutex, NodePtr node) : mutex_(mutex), node_(std::move(node)) {}

  void write(std::span<const std::byte> data) override {
    const std::lock_guard lock(mutex_);
    node_->unsynced_writes.emplace_back(reinterpret_cast<const char*>(data.data()), data.size());
    node_->content += node_->unsynced_writes.back();
  }

  void sync() override {
    const std::lock_guard lock(mutex_);
    node_->durable_content = node_->content;
    node_->unsynced_writes.clear();
  }

  void close() override {}

 private:
  std::mutex& mutex_;
  NodePtr node_;
};

class MemoryStorage::Reader final : public ReadFile {
 public:
  Reader(std::mutex& mutex, NodePtr node)
      : mutex_(mutex),
        node_(std::move(node)),
        bytes_(static_cast<int64_t>(node_->content.size())) {}

  int64_t bytes() const override { return bytes_; }

  int64_t read(int64_t offset, std::span<std::byte> out) const override {
    const std::lock_guard lock(mutex_);
    const auto& content = node_->content;
    const auto from = std::min(static_cast<size_t>(offset), content.size());
    const size_t n = std::min(out.size(), content.size() - from);
    std::copy_n(reinterpret_cast<const std::byte*>(content.data()) + from, n, out.data());
    return static_cast<int64_t>(n);
  }

 private:
  std::mutex& mutex_;
  NodePtr node_;
  int64_t bytes_;
};

MemoryStorage::MemoryStorage() : root_(std::make_shared<Node>()) { root_->directory = true; }
MemoryStorage::~MemoryStorage() = default;

MemoryStorage::NodePtr MemoryStorage::find(const fs::path& path) const {
  NodePtr node = root_;
  for (const fs::path& part : path.relative_path()) {
    if (part.empty() || part == ".") continue;
    if (!node->directory) return nullptr;
    const auto at = node->names.find(part.string());
    if (at == node->names.end()) return nullptr;
    node = at->second;
  }
  return node;
}

MemoryStorage::NodePtr MemoryStorage::parent_of(const fs::path& path,
                                                std::string_view operation) const {
  NodePtr parent = find(path.parent_path());
  if (!parent) throw StorageError(operation, path, ENOENT);
  if (!parent->directory) throw StorageError(operation, path, ENOTDIR);
  return parent;
}

std::unique_ptr<WriteFile> MemoryStorage::create(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  const NodePtr parent = parent_of(path, "create");
  const std::string name = path.filename().string();
  if (parent->names.contains(name)) throw StorageError("create", path, EEXIST);
  auto node = std::make_shared<Node>();
  parent->change({"", name, node});
  return std::make_unique<Writer>(mutex_, node);
}

std::unique_ptr<ReadFile> MemoryStorage::open(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(path);
  if (!node) throw StorageError("open", path, ENOENT);
  if (node->directory) throw StorageError("read", path, EISDIR);
  return std::make_unique<Reader>(mutex_, node);
}

void MemoryStorage::make_directory(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  const NodePtr parent = parent_of(path, "make the directory");
  const std::string name = path.filename().string();
  if (parent->names.contains(name)) throw StorageError("make the directory", path, EEXIST);
  auto node = std::make_shared<Node>();
  node->directory = true;
  parent->change({"", name, node});
}

void MemoryStorage::rename(const fs::path& from, const fs::path& to) {
  const std::lock_guard lock(mutex_);
  const NodePtr parent = parent_of(from, "rename"), node = find(from), there = find(to);
  if (!node) throw StorageError("rename", from, ENOENT);
  TRIREME_ASSERT(parent == parent_of(to, "rename to"), "rename across directories: ", from, ", ",
                 to);
  if (there && there->directory != node->directory)
    throw StorageError("rename to", to, there->directory ? EISDIR : ENOTDIR);
  if (there && there->directory && !there->names.empty())
    throw StorageError("rename to", to, ENOTEMPTY);
  parent->change({from.filename().string(), to.filename().string(), node});
}

void MemoryStorage::remove(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(path);
  if (!node) throw StorageError("remove", path, ENOENT);
  if (node->directory && !node->names.empty()) throw StorageError("remove", path, ENOTEMPTY);
  parent_of(path, "remove")->change({path.filename().string(), "", nullptr});
}

std::optional<std::vector<StorageEntry>> MemoryStorage::list(const fs::path& directory) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(directory);
  if (!node || !node->directory) return std::nullopt;
  std::vector<StorageEntry> entries;
  for (const auto& [name, child] : node->names)
    entries.push_back({name,
                       child->directory ? StorageEntry::Type::directory : StorageEntry::Type::file,
                       static_cast<int64_t>(child->content.size())});
  return entries;
}

void MemoryStorage::sync_directory(const fs::path& path) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(path);
  if (!node) throw StorageError("sync", path, ENOENT);
  node->durable_names = node->names;
  node->unsynced_changes.clear();
}

int64_t MemoryStorage::free_bytes(const fs::path&) { return std::numeric_limits<int64_t>::max(); }

std::string MemoryStorage::content(const fs::path& path) const {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(path);
  if (!node) throw StorageError("open", path, ENOENT);
  return node->content;
}

void MemoryStorage::set_content(const fs::path& path, std::string content) {
  const std::lock_guard lock(mutex_);
  const NodePtr parent = parent_of(path, "create");
  auto node = std::make_shared<Node>();
  node->content = node->durable_content = std::move(content);
  parent->names[path.filename().string()] = node;
  parent->durable_names[path.filename().string()] = node;
}

std::unique_ptr<MemoryStorage> MemoryStorage::crash(Unsynced unsynced, uint64_t seed) const {
  const std::lock_guard lock(mutex_);
  const RandomStream stream(seed, "crash");
  uint64_t draw = 0;
  const auto survives = [&] {
    return unsynced == Unsynced::kept || (unsynced == Unsynced::mixed && stream.bits(draw++) & 1);
  };
  std::map<const Node*, NodePtr> copies;  // a node that two surviving names share stays one
  std::function<NodePtr(const Node&)> copy = [&](const Node& node) {
    NodePtr& there = copies[&node];
    if (there) return there;
    const auto made = there = std::make_shared<Node>();
    made->directory = node.directory;
    made->content = node.durable_content;
    // Pages reach the disk in any order: behind a lost write a later one may stand, after zeros.
    size_t offset = made->content.size();
    for (const std::string& write : node.unsynced_writes) {
      size_t kept = write.size();
      if (!survives())
        kept = unsynced == Unsynced::mixed ? stream.below(draw++, write.size() + 1) : 0;
      if (kept > 0) {
        made->content.resize(offset, '\0');
        made->content += write.substr(0, kept);
      }
      offset += write.size();
    }
    made->durable_content = made->content;
    auto names = node.durable_names;
    for (const Node::Change& change : node.unsynced_changes)
      if (survives()) change.apply(names);
    for (const auto& [name, child] : names) made->names[name] = copy(*child);
    made->durable_names = made->names;
    return made;
  };
  auto after = std::make_unique<MemoryStorage>();
  after->root_ = copy(*root_);
  return after;
}

}  // namespace trireme
