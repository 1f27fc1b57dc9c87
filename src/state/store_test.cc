#include "state/store.h"

#include <algorithm>

#include "base/files.h"
#include "state/convert.h"
#include "state/test_store.h"

namespace trireme {
namespace {

using namespace testing;

// Written under any slicing, read under any other: every pair of 12 cuts, by one rank to five, and
// blocks from one element's width to more than a tensor, against an oracle that walks elements.
TEST(Store, WhatWasWrittenUnderOneCutIsReadUnderAnother) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(concat("cut ", seed));
    MemoryStorage storage;
    const Cut cut{.ranks = 1 + static_cast<int>(seed % 5),
                  .seed = seed,
                  .block_bytes = std::array{8, 16, 64, 1 << 20}[seed % 4]};
    const Checkpoint checkpoint =
        Checkpoint::open(storage, save(storage, "run/checkpoints", 3, cut));
    EXPECT_EQ(difference_from_saved(checkpoint), "");
    for (const TestTensor& tensor : small_model()) {
      const Bytes whole = content_of(tensor, 3);
      for (uint64_t other = 0; other < 12; ++other) {
        Dice dice(other, "read");
        for (const Slice& slice : random_cut(tensor.shape, dice)) {
          const Bytes expected = naive_slice(tensor, whole, slice);
          Bytes found(expected.size());
          checkpoint.read(tensor.name, slice, tensor.dtype, found);
          ASSERT_EQ(found, expected) << tensor.name << " " << to_string(slice);
        }
      }
    }
  }
}

// A slice that is read as another type is the slice converted.
TEST(Store, ConvertsWhatItReads) {
  MemoryStorage storage;
  const Checkpoint checkpoint =
      Checkpoint::open(storage, save(storage, "checkpoints", 5, {.ranks = 3, .seed = 4}));
  const TestTensor tensor = small_model()[0];
  const Bytes whole = content_of(tensor, 5);
  Dice dice(9, "convert");
  for (DType to : {DType::float64, DType::float32, DType::bfloat16, DType::float16})
    for (const Slice& slice : random_cut(tensor.shape, dice)) {
      const Bytes part = naive_slice(tensor, whole, slice);
      Bytes expected(static_cast<size_t>(slice.numel() * bytes_of(to))), found(expected.size());
      convert(tensor.dtype, part, to, expected);
      checkpoint.read(tensor.name, slice, to, found);
      ASSERT_EQ(found, expected) << name_of(to) << " " << to_string(slice);
    }
}

TEST(Store, ReadsOnlyTheBlocksThatASliceTouches) {
  MemoryStorage storage;
  const fs::path path = save(storage, "checkpoints", 1, {.ranks = 1, .block_bytes = 64});
  const Checkpoint before = Checkpoint::open(storage, path);
  const ChunkRecord chunk = before.find("model.embed_tokens.weight")->chunks.at(0);
  // Damage the fourth block, elements 48 to 64, rows 8 to 10 of 6.
  std::string content = storage.content(path / "model.safetensors");
  content[static_cast<size_t>(chunk.offset + 3 * 64)] ^= 1;
  storage.set_content(path / "model.safetensors", content);
  const Checkpoint after = Checkpoint::open(storage, path);
  Bytes out(8 * 6 * 4);
  after.read("model.embed_tokens.weight", Slice::box({{0, 8}, {0, 6}}), DType::float32, out);
  out.resize(1 * 6 * 4);
  EXPECT_THROW(
      after.read("model.embed_tokens.weight", Slice::box({{8, 9}, {0, 6}}), DType::float32, out),
      DamagedError);
}

TEST(Store, ProducedBytesAreStoredLikeGivenOnes) {
  MemoryStorage storage;
  const TestTensor tensor{"x", "weight", DType::float32, {9, 5}};
  const Bytes content = content_of(tensor, 2);
  const PendingCheckpoint pending = begin_checkpoint(storage, "checkpoints", 2);
  RankWriter writer(storage, pending.partial, 0, 1, 64);
  writer.add({.name = "x",
              .kind = "weight",
              .shape = tensor.shape,
              .slice = Slice::whole(tensor.shape),
              .produce = [&](int64_t first, std::span<std::byte> out) {
                std::copy_n(content.begin() + first, out.size(), out.begin());
              }});
  const auto path = commit_checkpoint(storage, pending, {writer.finish()}, info_of(2), {});
  Bytes found(content.size());
  Checkpoint::open(storage, path).read("x", Slice::whole(tensor.shape), DType::float32, found);
  EXPECT_EQ(found, content);
}

// Moves one chunk of a good save out of place in each way that a trainer could.
TEST(Store, CommitsOnlyWhatCoversEveryTensorOnce) {
  MemoryStorage storage;
  const auto attempt = [&](auto&& spoil) {
    const PendingCheckpoint pending = begin_checkpoint(storage, "checkpoints", 1);
    auto parts = write_ranks(storage, pending.partial, 1, {.ranks = 2, .seed = 3});
    spoil(parts);
    std::string message;
    try {
      commit_checkpoint(storage, pending, parts, info_of(1), {});
    } catch (const InternalError& error) {
      message = error.what();
    }
    abandon_checkpoint(storage, pending);
    EXPECT_EQ(storage.list("checkpoints")->size(), 0u) << "nothing may be left: " << message;
    return message;
  };
  const auto first_of = [](std::vector<Records>& parts) -> TensorRecord& {
    for (TensorRecord& tensor : parts[0].tensors)
      if (tensor.name == "model.embed_tokens.weight" && !tensor.chunks.empty()) return tensor;
    throw std::logic_error("rank 0 has no chunk of it");
  };
  const auto names = [](const std::string& message) {
    return message.find("model.embed_tokens.weight") != std::string::npos;
  };
  EXPECT_TRUE(names(attempt([&](auto& parts) { first_of(parts).chunks.clear(); })));
  EXPECT_TRUE(names(
      attempt([&](auto& parts) { first_of(parts).chunks.push_back(first_of(parts).chunks[0]); })));
  EXPECT_TRUE(names(attempt([&](auto& parts) { first_of(parts).dtype = DType::int32; })));
  EXPECT_TRUE(names(attempt([&](auto& parts) { first_of(parts).shape = {13, 7}; })));
  EXPECT_NE(attempt([&](auto& parts) { parts.pop_back(); }), "");
  EXPECT_NE(attempt([&](auto& parts) { parts.push_back(parts[0]); }), "");
}

TEST(Store, AStepSavedAgainReplacesTheOldOneAfterItsCommit) {
  MemoryStorage storage;
  EXPECT_EQ(save(storage, "c", 7).filename(), "step-00000007");
  EXPECT_EQ(save(storage, "c", 7, {.ranks = 2}).filename(), "step-00000007-2");
  EXPECT_EQ(storage.content("c/latest"), "step-00000007-2\n");
  ASSERT_EQ(storage.list("c")->size(), 2u);
  EXPECT_EQ(save(storage, "c", 7, {.ranks = 3}).filename(), "step-00000007-3");
  EXPECT_EQ(difference_from_saved(Checkpoint::open(storage, "c/step-00000007-3")), "");
}

TEST(Store, RefusesASaveThatDoesNotFitBeforeWritingAnything) {
  const fs::path run = fs::temp_directory_path() / concat("trireme-forecast-", ::getpid());
  make_directories(run);
  PosixStorage storage;
  try {
    begin_checkpoint(storage, run / "checkpoints", 1, int64_t{1} << 60);
    ADD_FAILURE() << "an exabyte fitted";
  } catch (const StorageError& error) {
    EXPECT_EQ(error.code(), ENOSPC);
  }
  EXPECT_TRUE(fs::is_empty(run / "checkpoints"));
  fs::remove_all(run);
}

// The same state gives the same bytes, and the machine's own file system does what the memory does.
TEST(Store, PosixHoldsWhatMemoryHolds) {
  const fs::path run = fs::temp_directory_path() / concat("trireme-store-", ::getpid());
  make_directories(run);
  PosixStorage posix;
  MemoryStorage memory;
  const Cut cut{.ranks = 2, .seed = 8};
  const fs::path a = save(posix, run / "checkpoints", 4, cut), b = save(memory, "c", 4, cut);
  EXPECT_EQ(difference_from_saved(Checkpoint::open(posix, a)), "");
  const auto in_a = *posix.list(a), in_b = *memory.list(b);
  ASSERT_EQ(in_a.size(), in_b.size());
  for (size_t i = 0; i < in_a.size(); ++i) {
    EXPECT_EQ(in_a[i].name, in_b[i].name);
    EXPECT_EQ(read_file(a / in_a[i].name), memory.content(b / in_b[i].name)) << in_a[i].name;
  }
  fs::remove_all(run);
}

TEST(Checkpoint, NamesTensorsThatAreMissingUnexpectedOrOfAnotherShape) {
  MemoryStorage storage;
  const Checkpoint checkpoint = Checkpoint::open(storage, save(storage, "c", 1));
  std::vector<ExpectedTensor> expected;
  for (const TestTensor& tensor : small_model())
    if (tensor.kind == "weight") expected.push_back({tensor.name, tensor.shape});
  checkpoint.require(expected);
  expected[0].shape = {12, 6};
  expected[1].name = "model.norm2.weight";
  try {
    checkpoint.require(expected);
    ADD_FAILURE() << "it was accepted";
  } catch (const InputError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("embed_tokens.weight is [13, 6] and not [12, 6]"), text.npos) << text;
    EXPECT_NE(text.find("model.norm2.weight is missing"), text.npos) << text;
    EXPECT_NE(text.find("model.norm.weight is unexpected"), text.npos) << text;
  }
  Bytes out(8);
  EXPECT_THROW(checkpoint.read("absent", {}, DType::float32, out), InputError);
  EXPECT_THROW(checkpoint.read("adamw.step", {}, DType::float64, out), InputError);
  EXPECT_THROW(checkpoint.read("model.norm.weight", Slice::box({{0, 8}}), DType::bfloat16, out),
               InputError);
}

}  // namespace
}  // namespace trireme
