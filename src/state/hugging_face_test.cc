#include "state/hugging_face.h"

#include <algorithm>
#include <cmath>

#include "base/test_mutation.h"
#include "state/convert.h"
#include "state/inspect.h"
#include "state/safetensors.h"
#include "state/tensor_stream.h"
#include "state/test_store.h"

namespace trireme {
namespace {

using namespace testing;

// Slabs of every size give the tensor's bytes in order, in pieces of every size.
TEST(TensorStream, GivesTheWholeTensor) {
  MemoryStorage storage;
  const Checkpoint checkpoint =
      Checkpoint::open(storage, save(storage, "c", 1, {.ranks = 3, .seed = 2}));
  for (const TestTensor& test : small_model()) {
    const TensorRecord& tensor = *checkpoint.find(test.name);
    const Bytes whole = content_of(test, 1);
    for (int64_t slab : {1, 24, 40, 100, 1 << 20})
      for (size_t piece : {1, 7, 64, 10'000}) {
        TensorStream stream(checkpoint, tensor, tensor.dtype, slab);
        Bytes found;
        while (stream.bytes_left() > 0) {
          Bytes part(std::min(piece, static_cast<size_t>(stream.bytes_left())));
          stream.read(part);
          found.insert(found.end(), part.begin(), part.end());
        }
        ASSERT_EQ(found, whole) << test.name << " slab " << slab << " piece " << piece;
      }
  }
}

fs::path save_values(Storage& storage, const std::string& name, DType dtype,
                     const std::vector<double>& values) {
  Bytes bytes(values.size() * static_cast<size_t>(bytes_of(dtype)));
  convert(DType::float64, std::as_bytes(std::span(values)), dtype, bytes);
  const PendingCheckpoint pending = begin_checkpoint(storage, name, 1);
  RankWriter writer(storage, pending.partial, 0, 1);
  const Shape shape = {static_cast<int64_t>(values.size())};
  writer.add({.name = "x",
              .kind = "weight",
              .dtype = dtype,
              .shape = shape,
              .slice = Slice::whole(shape),
              .data = bytes});
  return commit_checkpoint(storage, pending, {writer.finish()}, info_of(1), {});
}

// Against the plain two-pass formula in long double, over more than one piece, far from zero.
TEST(Inspect, StatisticsAreThoseOfTheFiniteElements) {
  MemoryStorage storage;
  const RandomStream stream(1, "values");
  std::vector<double> values;
  for (uint64_t i = 0; i < 200'001; ++i) values.push_back(1000 + stream.normal(i));
  values[3] = NAN, values[70'000] = -INFINITY, values[200'000] = INFINITY;
  long double sum = 0, squares = 0;
  int64_t n = 0;
  for (double x : values)
    if (std::isfinite(x)) sum += x, ++n;
  for (double x : values)
    if (std::isfinite(x)) squares += (x - sum / n) * (x - sum / n);
  const Checkpoint checkpoint =
      Checkpoint::open(storage, save_values(storage, "c", DType::float64, values));
  const auto s = statistics_of(checkpoint, *checkpoint.find("x"));
  // 200,000 additions in fp64 leave at most 2e5 * 1e-16 relative; the sums are of pieces.
  EXPECT_NEAR(s.mean, static_cast<double>(sum / n), 1e-9);
  EXPECT_NEAR(s.std, static_cast<double>(std::sqrt(squares / n)), 1e-10);
  EXPECT_DOUBLE_EQ(s.non_finite, 3 / 200'001.0);
  EXPECT_LT(s.min, 997);
  EXPECT_GT(s.max, 1003);
  const Checkpoint bad =
      Checkpoint::open(storage, save_values(storage, "d", DType::bfloat16, {NAN, NAN}));
  const auto none = statistics_of(bad, *bad.find("x"));
  EXPECT_TRUE(std::isnan(none.mean) && std::isnan(none.std));
  EXPECT_EQ(none.non_finite, 1);
}

TEST(Inspect, DifferencesSayWhichAndByHowMuch) {
  MemoryStorage storage;
  const auto opened = [&](const char* name, DType dtype, const std::vector<double>& values) {
    return Checkpoint::open(storage, save_values(storage, name, dtype, values));
  };
  const Checkpoint a = opened("a", DType::float32, {3, 4, NAN, 0, 1});
  const auto found = [&](const Checkpoint& b) {
    const auto all = differences(a, b);
    return all.empty() ? TensorDifference{} : all[0];
  };
  EXPECT_EQ(found(opened("b", DType::float32, {3, 4, NAN, 0, 1})).what, "");
  const auto values = found(opened("c", DType::float32, {3, 4.5, NAN, -0.0, 1}));
  EXPECT_EQ(values.what, "values");
  EXPECT_EQ(values.differing, 2);
  EXPECT_EQ(values.numel, 5);
  EXPECT_EQ(values.max_abs, 0.5);
  EXPECT_DOUBLE_EQ(values.relative, 0.5 / std::sqrt(9 + 4.5 * 4.5 + 1));
  EXPECT_EQ(found(opened("d", DType::float32, {3, 4, 5, 0, 1})).max_abs, INFINITY);
  EXPECT_EQ(found(opened("e", DType::float32, {3, 4, NAN, 0})).what, "shape");
  EXPECT_EQ(found(opened("f", DType::bfloat16, {3, 4, NAN, 0, 1})).what, "dtype");
  EXPECT_EQ(found(opened("g", DType::bfloat16, {3, 5, NAN, 0, 1})).what, "values");
  const Checkpoint small = Checkpoint::open(storage, save(storage, "s", 1));
  EXPECT_EQ(differences(small, a, "moment").size(), 2u) << "other kinds are left out";
  EXPECT_EQ(differences(small, small).size(), 0u);
  const Checkpoint next = Checkpoint::open(storage, save(storage, "n", 2));
  EXPECT_EQ(differences(small, next).size(), small_model().size() - 1) << "one has no elements";
}

// Written by three ranks, exported whole in one file and in many, read back as it was.
TEST(HuggingFace, ExportsWholeTensorsThatComeBack) {
  MemoryStorage storage;
  const Checkpoint checkpoint =
      Checkpoint::open(storage, save(storage, "c", 1, {.ranks = 3, .seed = 2}));
  for (int64_t shard_bytes : {int64_t{1} << 40, int64_t{1}, int64_t{400}}) {
    const std::string target = concat("hf-", shard_bytes);
    export_hugging_face(checkpoint, storage, target, {.dtype = {}, .shard_bytes = shard_bytes});
    EXPECT_EQ(storage.content(target + "/tokenizer.json"), std::string(100, 't'));
    const Checkpoint back = open_tensors(storage, target);
    EXPECT_FALSE(back.checksummed());
    EXPECT_EQ(differences(checkpoint, back, "weight").size(), 0u) << target;
    EXPECT_EQ(back.tensors().size(), 4u) << "weights only";
    import_weights(back, storage, target + "-in", {{"trireme", "1"}});
    const Checkpoint imported = Checkpoint::open(storage, target + "-in");
    EXPECT_EQ(differences(checkpoint, imported, "weight").size(), 0u);
    EXPECT_TRUE(imported.verify().empty());
    EXPECT_EQ(imported.attachment("config.json"), "{}");
  }
  EXPECT_THROW(export_hugging_face(checkpoint, storage, "hf-1", {}), InputError) << "it exists";
  export_hugging_face(checkpoint, storage, "half", {.dtype = DType::float16});
  EXPECT_EQ(storage.content("half/config.json"), "{\n  \"torch_dtype\": \"float16\"\n}\n");
  EXPECT_EQ(open_tensors(storage, "half").find("model.norm.weight")->dtype, DType::float16);
}

TEST(HuggingFace, RefusesAnIndexThatDoesNotFitItsFiles) {
  MemoryStorage storage;
  const Checkpoint checkpoint = Checkpoint::open(storage, save(storage, "c", 1));
  export_hugging_face(checkpoint, storage, "hf", {.dtype = {}, .shard_bytes = 1});
  const std::string index = storage.content("hf/model.safetensors.index.json");
  const auto refusal = [&](std::string_view from, std::string_view to) {
    std::string text = index;
    text.replace(text.find(from), from.size(), to);
    storage.set_content("hf/model.safetensors.index.json", text);
    try {
      open_tensors(storage, "hf");
      return std::string();
    } catch (const InputError& error) {
      return std::string(error.what());
    }
  };
  const auto has = [](const std::string& text, const char* what) {
    return text.find(what) != text.npos;
  };
  EXPECT_EQ(refusal("weight_map", "weight_map"), "");
  EXPECT_TRUE(has(refusal("weight_map", "weight_mop"), "weight_map"));
  EXPECT_TRUE(has(refusal("\"model.norm.weight\"", "\"model.norm2.weight\""), "model.norm"));
  EXPECT_TRUE(has(refusal("model-00001-of", "../c/model-00001-of"), "weight_map"));
  EXPECT_TRUE(has(refusal("model-00001-of", "model-00009-of"), "missing"));
  EXPECT_TRUE(has(refusal("{", "["), "no JSON"));
}

TEST(HuggingFace, FindsWhateverAPathMeans) {
  MemoryStorage storage;
  storage.make_directory("run");
  save(storage, "run/checkpoints", 1);
  save(storage, "run/checkpoints", 2);
  EXPECT_EQ(open_tensors(storage, "run").info().step, 2);
  EXPECT_EQ(open_tensors(storage, "run/checkpoints").info().step, 2);
  EXPECT_EQ(open_tensors(storage, "run/checkpoints/step-00000001").info().step, 1);
  const auto file = open_tensors(storage, "run/checkpoints/step-00000001/optimizer.safetensors");
  EXPECT_EQ(file.tensors().size(), 2u);
  storage.make_directory("empty");
  storage.make_directory("fresh");
  storage.make_directory("fresh/checkpoints");
  for (const char* path : {"nowhere", "empty", "fresh"})
    EXPECT_THROW(open_tensors(storage, path), InputError) << path;
}

// Header and index of a sharded directory, damaged; whatever still opens is read to its last byte.
void survive_damaged_weights(uint64_t seed, uint64_t count) {
  MemoryStorage storage;
  storage.make_directory("hf");
  for (const char* name : {"a", "b"}) {
    std::vector<SafetensorsEntry> entries = {{{concat(name, ".x"), {4, 3}, DType::float32}, 0},
                                             {{concat(name, ".y"), {5}, DType::bfloat16}, 0}};
    storage.set_content(concat("hf/", name, ".safetensors"),
                        safetensors_head(entries) + std::string(58, 'v'));
  }
  const fs::path index = "hf/model.safetensors.index.json", shard = "hf/a.safetensors";
  const std::string sound_index =
      R"({"metadata": {"total_size": 116}, "weight_map": {"a.x": "a.safetensors",
      "a.y": "a.safetensors", "b.x": "b.safetensors", "b.y": "b.safetensors"}})";
  const std::string sound_shard = storage.content(shard),
                    sound_head = sound_shard.substr(0, sound_shard.size() - 58);
  survive(seed, count, [&](Mutator& mutator) {
    std::string head = sound_head;
    const uint64_t kind = mutator.below(3);
    if (kind == 0) {
      const std::string text = mutator.structure(head.substr(8));
      head = std::string(8, '\0') + text;
      for (size_t i = 0; i < 8; ++i) head[i] = static_cast<char>(text.size() >> 8 * i);
    } else if (kind == 1) {
      head = mutator.bytes(head);
    }
    storage.set_content(shard, head + std::string(58, 'v'));
    storage.set_content(index, kind == 2 ? mutator.either(sound_index) : sound_index);
    const Checkpoint checkpoint = open_hugging_face(storage, "hf");
    for (const TensorRecord& tensor : checkpoint.tensors()) {
      Bytes out(static_cast<size_t>(tensor.nbytes()));
      checkpoint.read(tensor.name, Slice::whole(tensor.shape), tensor.dtype, out);
    }
  });
}

TEST(HuggingFace, SurvivesDamagedWeights) { survive_damaged_weights(1, 5000); }

TEST(LongHuggingFace, SurvivesManyDamagedWeights) { survive_damaged_weights(2, 400'000); }

}  // namespace
}  // namespace trireme
