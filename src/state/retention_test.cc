#include "state/retention.h"

#include <algorithm>

#include "base/files.h"
#include "state/test_store.h"

namespace trireme {
namespace {

using namespace testing;

std::vector<std::string> names_in(Storage& storage, const fs::path& checkpoints) {
  std::vector<std::string> names;
  for (const StorageEntry& entry : entries_in(storage, checkpoints)) names.push_back(entry.name);
  return names;
}

void flip(MemoryStorage& storage, const fs::path& file, size_t from_end) {
  std::string content = storage.content(file);
  content[content.size() - from_end] ^= 1;
  storage.set_content(file, content);
}

TEST(CheckpointName, OnlyItsOwnTextIsOne) {
  using State = CheckpointName::State;
  for (int64_t step : {int64_t{0}, int64_t{7}, int64_t{99999999}, int64_t{123456789012}})
    for (int64_t again : {1, 2, 12})
      for (State state : {State::committed, State::partial, State::removed}) {
        const std::string text = to_string(CheckpointName{step, again, state});
        const auto name = parse_checkpoint_name(text);
        ASSERT_TRUE(name) << text;
        EXPECT_TRUE(name->step == step && name->again == again && name->state == state) << text;
      }
  EXPECT_EQ(to_string(CheckpointName{.step = 100}), "step-00000100");
  for (const char* text :
       {"", "step-", "step-1", "step-0000000x", "step--0000001", "step-00000001-1",
        "step-00000001-02", "step-00000001-", "step-00000001.partial.partial", "step-00000001.old",
        "step-000000001", "step-99999999999999999999", " step-00000001", "Step-00000001", "latest"})
    EXPECT_FALSE(parse_checkpoint_name(text)) << text;
}

TEST(Retention, TheNewestIsTheHighestStepThatIsInOrder) {
  MemoryStorage storage;
  EXPECT_FALSE(newest_committed(storage, "nowhere"));
  save(storage, "c", 99999999);
  save(storage, "c", 5);
  EXPECT_EQ(*newest_committed(storage, "c"), "c/step-99999999");
  save(storage, "c", 100000000);
  EXPECT_EQ(*newest_committed(storage, "c"), "c/step-100000000");
  storage.set_content("c/latest", "step-00000005\n");  // a hint is not believed
  EXPECT_EQ(*newest_committed(storage, "c"), "c/step-100000000");
  flip(storage, "c/step-100000000/manifest.json", 200);
  storage.make_directory("c/step-200000000");
  storage.make_directory("c/step-300000000.partial");
  storage.set_content("c/step-400000000", "a file");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(*newest_committed(storage, "c"), "c/step-99999999");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("skipping the checkpoint c/step-100000000"), said.npos) << said;
  EXPECT_NE(said.find("skipping the checkpoint c/step-200000000"), said.npos) << said;
  const auto entries = list_checkpoints(storage, "c");
  ASSERT_EQ(entries.size(), 5u);
  EXPECT_EQ(entries[0].path.filename(), "step-300000000.partial");
  EXPECT_NE(entries[2].problem, "");
  EXPECT_EQ(entries[3].problem, "");
}

TEST(Retention, LoadingFallsBackWhenTensorsAreDamaged) {
  MemoryStorage storage;
  save(storage, "c", 1);
  save(storage, "c", 2);
  flip(storage, "c/step-00000002/model.safetensors", 3);
  ::testing::internal::CaptureStderr();
  int64_t loaded = 0;
  const auto path = load_newest(storage, "c", [&](const Checkpoint& checkpoint) {
    EXPECT_EQ(difference_from_saved(checkpoint), "");
    loaded = checkpoint.info().step;
  });
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(*path, "c/step-00000001");
  EXPECT_EQ(loaded, 1);
  // What is not damage is not covered up.
  EXPECT_THROW(load_newest(storage, "c", [](const Checkpoint&) { throw InputError("no"); }),
               InputError);
}

TEST(Retention, KeepsWhatThePolicySays) {
  MemoryStorage storage;
  for (int64_t step = 10; step <= 100; step += 10) save(storage, "c", step);
  const RetentionPolicy policy{.keep = 2, .every_steps = 40, .names = {"step-00000030"}};
  EXPECT_EQ(prune_checkpoints(storage, "c", policy, true).size(), 5u);
  EXPECT_EQ(names_in(storage, "c").size(), 11u) << "a dry run removed something";
  prune_checkpoints(storage, "c", policy);
  EXPECT_EQ(names_in(storage, "c"),
            (std::vector<std::string>{"latest", "step-00000030", "step-00000040", "step-00000080",
                                      "step-00000090", "step-00000100"}));
}

TEST(Retention, TheNewestGoodOneStaysWhateverThePolicySays) {
  MemoryStorage storage;
  for (int64_t step = 1; step <= 4; ++step) save(storage, "c", step);
  flip(storage, "c/step-00000004/model.safetensors", 3);  // found by reading only
  flip(storage, "c/step-00000003/manifest.json", 100);    // found by opening
  EXPECT_EQ(prune_checkpoints(storage, "c", {.keep = 1}),
            (std::vector<fs::path>{"c/step-00000001"}));
  EXPECT_EQ(names_in(storage, "c"), (std::vector<std::string>{"latest", "step-00000002",
                                                              "step-00000003", "step-00000004"}));
  flip(storage, "c/step-00000002/optimizer.safetensors", 3);
  EXPECT_TRUE(prune_checkpoints(storage, "c", {.keep = 1}).empty()) << "nothing good is left";
}

TEST(Retention, ClearsUpWhatIsOursAndNothingElse) {
  MemoryStorage storage;
  save(storage, "c", 1);
  for (const char* directory :
       {"c/step-00000002.partial", "c/step-00000003.removed", "c/mine", "c/step-00000004.partial",
        "c/step-00000004.partial/inner", "c/step-5.partial", "c/other.partial"})
    storage.make_directory(directory);
  storage.set_content("c/step-00000002.partial/model.safetensors", "half");
  storage.set_content("c/step-00000003.removed/manifest.json", "{}");
  storage.set_content("c/latest.partial", "step-");
  storage.set_content("c/notes.txt", "mine");
  storage.set_content("c/step-00000006.partial", "a file of somebody");
  ::testing::internal::CaptureStderr();
  const auto removed = remove_leftovers(storage, "c");
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(removed.size(), 3u);
  EXPECT_EQ(names_in(storage, "c"),
            (std::vector<std::string>{"latest", "mine", "notes.txt", "other.partial",
                                      "step-00000001", "step-00000004.partial",
                                      "step-00000006.partial", "step-5.partial"}));
  EXPECT_TRUE(remove_leftovers(storage, "nowhere").empty());
}

}  // namespace
}  // namespace trireme
