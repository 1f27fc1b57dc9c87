#include "state/retention.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iomanip>
#include <sstream>

#include "base/log.h"

namespace trireme {
namespace {

using State = CheckpointName::State;
constexpr std::string_view kPrefix = "step-", kPartial = ".partial", kRemoved = ".removed";

// Digits at the front of `text`, which they are removed from; nullopt if there are none.
std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end == text.data() || text[0] == '-') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view what, bool at_end) {
  if (at_end ? !text.ends_with(what) : !text.starts_with(what)) return false;
  if (at_end) text.remove_suffix(what.size());
  else text.remove_prefix(what.size());
  return true;
}

struct Named {
  CheckpointName name;
  fs::path path;
};

// Every directory with a name of ours, newest first.
std::vector<Named> named(Storage& storage, const fs::path& checkpoints) {
  std::vector<Named> found;
  for (const StorageEntry& entry :
       storage.list(checkpoints).value_or(std::vector<StorageEntry>())) {
    const auto name = parse_checkpoint_name(entry.name);
    if (name && entry.type == StorageEntry::Type::directory)
      found.push_back({*name, checkpoints / entry.name});
  }
  std::ranges::stable_sort(found, [](const Named& a, const Named& b) {
    return std::tuple(b.name.step, b.name.again, a.name.state) <
           std::tuple(a.name.step, a.name.again, b.name.state);
  });
  return found;
}

// Whether it opens; what it says of itself goes into `entry`.
bool try_open(Storage& storage, CheckpointEntry& entry) {
  try {
    const Checkpoint checkpoint = Checkpoint::open(storage, entry.path);
    entry.samples = checkpoint.info().samples;
    entry.tokens = checkpoint.info().tokens;
    return true;
  } catch (const Error& error) {
    entry.problem = error.what();
    return false;
  }
}

// Takes the name away first: what is half removed looks like nothing else. Another process may be
// removing it too.
void remove_committed(Storage& storage, const fs::path& path) {
  const fs::path removed = path.string() + std::string(kRemoved);
  remove_directory(storage, removed);
  try {
    storage.rename(path, removed);
  } catch (const StorageError& error) {
    if (error.code() == ENOENT) return;
    throw;
  }
  storage.sync_directory(path.parent_path());
  remove_directory(storage, removed);
}

bool only_files(Storage& storage, const fs::path& directory) {
  const auto entries = storage.list(directory);
  return entries && std::ranges::all_of(*entries, [](const StorageEntry& entry) {
           return entry.type == StorageEntry::Type::file;
         });
}

}  // namespace

std::string to_string(const CheckpointName& name) {
  std::ostringstream text;
  text << kPrefix << std::setfill('0') << std::setw(8) << name.step;
  if (name.again > 1) text << '-' << name.again;
  if (name.state == State::partial) text << kPartial;
  if (name.state == State::removed) text << kRemoved;
  return std::move(text).str();
}

std::optional<CheckpointName> parse_checkpoint_name(std::string_view text) {
  const std::string_view whole = text;
  CheckpointName name;
  if (take(text, kPartial, true)) name.state = State::partial;
  else if (take(text, kRemoved, true)) name.state = State::removed;
  if (!take(text, kPrefix, false)) return std::nullopt;
  const auto step = take_number(text);
  if (!step) return std::nullopt;
  name.step = *step;
  if (take(text, "-", false)) name.again = take_number(text).value_or(0);
  if (to_string(name) != whole) return std::nullopt;
  return name;
}

std::vector<CheckpointEntry> list_checkpoints(Storage& storage, const fs::path& checkpoints) {
  std::vector<CheckpointEntry> entries;
  for (const Named& found : named(storage, checkpoints)) {
    CheckpointEntry entry{.name = found.name, .path = found.path, .problem = ""};
    if (found.name.state == State::committed) try_open(storage, entry);
    const auto files = storage.list(found.path);
    if (!files) continue;
    for (const StorageEntry& file : *files) entry.bytes += file.bytes;
    entries.push_back(std::move(entry));
  }
  return entries;
}

std::optional<fs::path> newest_committed(Storage& storage, const fs::path& checkpoints) {
  return load_newest(storage, checkpoints, [](const Checkpoint&) {});
}

std::optional<fs::path> load_newest(Storage& storage, const fs::path& checkpoints,
                                    const std::function<void(const Checkpoint&)>& load) {
  for (const Named& found : named(storage, checkpoints)) {
    if (found.name.state != State::committed) continue;
    try {
      load(Checkpoint::open(storage, found.path));
      return found.path;
    } catch (const DamagedError& error) {
      log_warning(concat("skipping the checkpoint ", found.path.string(), ": ", error.what()));
    }
  }
  return std::nullopt;
}

std::vector<fs::path> prune_checkpoints(Storage& storage, const fs::path& checkpoints,
                                        const RetentionPolicy& policy, bool dry_run) {
  TRIREME_ASSERT(policy.keep > 0, "keep = ", policy.keep);
  int64_t kept = 0;
  bool verified = false;
  std::vector<fs::path> removed;
  for (const Named& found : named(storage, checkpoints)) {
    if (found.name.state != State::committed) continue;
    const std::string name = found.path.filename().string();
    if (kept < policy.keep || !verified) {
      // One that is not in order counts for nothing, and stays for somebody to look at.
      CheckpointEntry entry{.name = found.name, .path = found.path, .problem = ""};
      if (!try_open(storage, entry)) continue;
      if (!verified && name != policy.trusted &&
          !Checkpoint::open(storage, found.path).verify().empty())
        continue;
      verified = true;
      ++kept;
      continue;
    }
    const bool milestone = policy.every_steps > 0 && found.name.step % policy.every_steps == 0;
    if (milestone || std::ranges::find(policy.names, name) != policy.names.end()) continue;
    if (!dry_run) remove_committed(storage, found.path);
    removed.push_back(found.path);
  }
  return removed;
}

void remove_superseded(Storage& storage, const fs::path& checkpoints, const CheckpointName& by) {
  for (const Named& found : named(storage, checkpoints))
    if (found.name.state == State::committed && found.name.step == by.step &&
        found.name.again < by.again)
      remove_committed(storage, found.path);
}

std::vector<fs::path> remove_leftovers(Storage& storage, const fs::path& checkpoints) {
  std::vector<fs::path> removed;
  for (const Named& found : named(storage, checkpoints)) {
    if (found.name.state == State::committed) continue;
    if (!only_files(storage, found.path)) {
      log_warning(concat("leaving ", found.path.string(), ": it holds what no save writes"));
      continue;
    }
    remove_directory(storage, found.path);
    removed.push_back(found.path);
  }
  const fs::path hint = checkpoints / "latest.partial";
  for (const StorageEntry& entry : storage.list(checkpoints).value_or(std::vector<StorageEntry>()))
    if (checkpoints / entry.name == hint && entry.type == StorageEntry::Type::file) {
      storage.remove(hint);
      removed.push_back(hint);
    }
  return removed;
}

}  // namespace trireme
