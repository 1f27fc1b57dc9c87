// Checkpoints whose bytes are not what was written: flipped, cut, missing, swapped, foreign.
#include "state/test_store.h"

#include <algorithm>

namespace trireme {
namespace {

using namespace testing;

const std::vector<std::string> kNames = [] {
  std::vector<std::string> names;
  for (const TestTensor& tensor : small_model()) names.push_back(tensor.name);
  return names;
}();

bool names_a_tensor(const std::string& text) {
  return std::ranges::any_of(kNames, [&](const auto& n) { return text.find(n) != text.npos; });
}

// What loading says: "" if everything was read and is what was written.
std::string load(Storage& storage, const fs::path& path) {
  try {
    const std::string difference = difference_from_saved(Checkpoint::open(storage, path));
    EXPECT_EQ(difference, "") << "damage was handed out";
    return "";
  } catch (const DamagedError& error) {
    return error.what();
  }
}

// What verification says.
std::string verify(Storage& storage, const fs::path& path) {
  try {
    const auto problems = Checkpoint::open(storage, path).verify();
    return problems.empty() ? "" : problems[0];
  } catch (const DamagedError& error) {
    return error.what();
  }
}

// The tensor whose bytes hold `at` of a file, or "" for its head.
std::string owner(const Checkpoint& checkpoint, const std::string& file, int64_t at) {
  for (const TensorRecord& tensor : checkpoint.tensors())
    for (const ChunkRecord& chunk : tensor.chunks)
      if (chunk.file == file && chunk.offset <= at && at < chunk.offset + chunk.bytes)
        return tensor.name;
  return "";
}

// Every bit of every file of a checkpoint of two ranks: there is no padding that nothing covers.
TEST(Damage, SlowEverySingleFlippedBitIsFoundByVerifyAndByLoading) {
  MemoryStorage storage;
  const fs::path path = save(storage, "c", 1, {.ranks = 2, .seed = 11});
  const Checkpoint sound = Checkpoint::open(storage, path);
  int64_t flips = 0;
  for (const StorageEntry& entry : entries_in(storage, path)) {
    const std::string content = storage.content(path / entry.name);
    for (size_t at = 0; at < content.size(); ++at)
      for (int bit = 0; bit < 8; ++bit) {
        std::string damaged = content;
        damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
        storage.set_content(path / entry.name, damaged);
        const std::string loading = load(storage, path), verifying = verify(storage, path);
        const std::string name = owner(sound, entry.name, static_cast<int64_t>(at));
        ASSERT_NE(loading.find(entry.name), loading.npos)
            << entry.name << " byte " << at << " bit " << bit << ": \"" << loading << '"';
        ASSERT_NE(verifying.find(entry.name), verifying.npos) << verifying;
        ASSERT_NE(loading.find(name), loading.npos) << loading;
        ASSERT_NE(verifying.find(name), verifying.npos) << verifying;
        if (entry.name.ends_with(".safetensors")) {
          ASSERT_TRUE(names_a_tensor(loading) && names_a_tensor(verifying)) << loading;
        }
        ++flips;
      }
    storage.set_content(path / entry.name, content);
  }
  EXPECT_EQ(load(storage, path), "");
  EXPECT_GT(flips, 20'000);
}

TEST(Damage, CutEmptiedMissingAndReplacedFilesAreFound) {
  MemoryStorage storage;
  const fs::path path = save(storage, "c", 1, {.ranks = 2, .seed = 11});
  const auto found = [&](const std::string& name) {
    const std::string loading = load(storage, path), verifying = verify(storage, path);
    EXPECT_NE(loading.find(name), loading.npos) << loading;
    EXPECT_NE(verifying.find(name), verifying.npos) << verifying;
    if (name.ends_with(".safetensors")) {
      EXPECT_TRUE(names_a_tensor(loading) && names_a_tensor(verifying)) << loading;
    }
  };
  for (const StorageEntry& entry : entries_in(storage, path)) {
    SCOPED_TRACE(entry.name);
    const std::string content = storage.content(path / entry.name);
    for (size_t kept : {content.size() - 1, content.size() / 2, size_t{9}, size_t{1}, size_t{0}}) {
      if (kept >= content.size()) continue;
      storage.set_content(path / entry.name, content.substr(0, kept));
      found(entry.name);
    }
    storage.set_content(path / entry.name, content + "x");
    found(entry.name);
    storage.remove(path / entry.name);
    found(entry.name);
    storage.make_directory(path / entry.name);
    found(entry.name);
    storage.remove(path / entry.name);
    storage.set_content(path / entry.name, content);
  }
  EXPECT_EQ(load(storage, path), "");
}

TEST(Damage, SwappedAndForeignFilesAreFound) {
  MemoryStorage storage;
  // The second checkpoint has files of the same names and sizes.
  const fs::path a = save(storage, "a", 1, {.ranks = 2, .seed = 11});
  const fs::path b = save(storage, "b", 3, {.ranks = 2, .seed = 11});
  for (const StorageEntry& entry : entries_in(storage, a)) {
    const std::string mine = storage.content(a / entry.name);
    const std::string other = storage.content(b / entry.name);
    if (mine == other) continue;  // attachments and headers may be the same
    storage.set_content(a / entry.name, other);
    if (entry.name != kManifestName) {
      EXPECT_TRUE(names_a_tensor(load(storage, a))) << entry.name;
    }
    EXPECT_NE(verify(storage, a), "") << entry.name;
    storage.set_content(a / entry.name, mine);
  }
  const std::string one = "model-00000-of-00002.safetensors",
                    two = "model-00001-of-00002.safetensors";
  const std::string content = storage.content(a / one);
  storage.set_content(a / one, storage.content(a / two));
  storage.set_content(a / two, content);
  EXPECT_TRUE(names_a_tensor(load(storage, a)));
  EXPECT_TRUE(names_a_tensor(verify(storage, a)));
}

// A file that is cut while it is open, and one whose disk fails, are errors with a name.
TEST(Damage, AFileThatShrinksUnderItsReaderIsFound) {
  const fs::path run = fs::temp_directory_path() / concat("trireme-shrink-", ::getpid());
  fs::create_directories(run);
  PosixStorage storage;
  const fs::path path = save(storage, run, 1);
  const Checkpoint checkpoint = Checkpoint::open(storage, path);
  const TensorRecord& tensor = *checkpoint.find("model.norm.weight");
  Bytes out(static_cast<size_t>(tensor.nbytes()));
  checkpoint.read(tensor.name, Slice::whole(tensor.shape), tensor.dtype, out);
  fs::resize_file(path / "model.safetensors", 100);
  try {
    checkpoint.read(tensor.name, Slice::whole(tensor.shape), tensor.dtype, out);
    ADD_FAILURE() << "it was read";
  } catch (const DamagedError& error) {
    EXPECT_TRUE(names_a_tensor(error.what())) << error.what();
  }
  fs::remove_all(run);
}

}  // namespace
}  // namespace trireme
