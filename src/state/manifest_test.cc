#include "state/manifest.h"

#include <xxhash.h>
#include <algorithm>

#include <cstdio>

#include "base/files.h"
#include "base/test_mutation.h"
#include "state/manifest_json.h"
#include "state/test_store.h"

namespace trireme {
namespace {

using namespace testing;

std::string saved_manifest() {
  MemoryStorage storage;
  return storage.content(save(storage, "c", 2, {.ranks = 2, .seed = 6}) / kManifestName);
}

// The text with a digest that fits, computed here from the document's words: XXH3, 128 bits, over
// everything in front of the line.
std::string with_digest(const std::string& text) {
  const std::string body = text.substr(0, text.rfind(",\n \"digest\""));
  const XXH128_hash_t hash = XXH3_128bits(body.data(), body.size());
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016lx%016lx", hash.high64, hash.low64);
  return body + ",\n \"digest\": \"xxh128:" + digits + "\"}\n";
}

std::string refusal(const std::string& text) {
  try {
    parse_manifest(text, "m");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Manifest, ComesBackAsItWasWritten) {
  const std::string text = saved_manifest();
  Manifest manifest = parse_manifest(text, "m");
  EXPECT_EQ(format_manifest(manifest), text);
  EXPECT_EQ(with_digest(text), text);
  const auto part = parse_records(serialize_records(manifest));
  EXPECT_EQ(serialize_records(part), serialize_records(manifest));
}

// The example in docs/checkpoint-format.md is what this code writes.
TEST(Manifest, TheDocumentShowsWhatIsWritten) {
  MemoryStorage storage;
  const PendingCheckpoint pending = begin_checkpoint(storage, "c", 100);
  const float embedding[] = {0, 1, 2, 3, 4, 5, 6, 7}, norm[] = {1, 1};
  std::vector<Records> parts;
  for (int rank = 0; rank < 2; ++rank) {
    RankWriter writer(storage, pending.partial, rank, 2);
    writer.add({.name = "model.embed_tokens.weight",
                .kind = "weight",
                .shape = {4, 2},
                .slice = Slice::box({{2 * rank, 2 * rank + 2}, {0, 2}}),
                .data = std::as_bytes(std::span(embedding).subspan(4 * size_t(rank), 4))});
    if (rank == 0)
      writer.add({.name = "model.norm.weight",
                  .kind = "weight",
                  .shape = {2},
                  .slice = Slice::whole({2}),
                  .data = std::as_bytes(std::span(norm))});
    parts.push_back(writer.finish());
  }
  CheckpointInfo info;
  info.step = 100;
  info.samples = 1600;
  info.tokens = 409600;
  info.seed = 1;
  info.recipe = "task = \"pretrain\"\n";
  info.layout = "shard=2";
  info.software = {{"trireme", "0.1.0"}};
  info.metrics = {{"loss", 2.5}};
  const fs::path path = commit_checkpoint(storage, pending, parts, info, {{"config.json", "{}"}});
  const std::string document = read_file(TRIREME_SOURCE_DIR "/docs/checkpoint-format.md");
  const std::string manifest = storage.content(path / kManifestName);
  EXPECT_NE(document.find("```json\n" + manifest + "```"), document.npos)
      << "the example should read\n"
      << manifest;
  const std::string header =
      storage.content(path / "model-00000-of-00002.safetensors").substr(8, 160);
  EXPECT_NE(document.find(header.substr(0, header.find("}}}") + 2)), document.npos) << header;
}

// Each edit of a sound manifest, with a digest that fits, is refused for its own reason.
TEST(Manifest, RefusesWhatIsNotSound) {
  struct Edit {
    const char *from, *to, *reason;
  };
  const std::string sound = saved_manifest();
  const Edit edits[] = {
      {"\"format\": \"trireme-checkpoint\"", "\"format\": \"other\"", "format"},
      {"\"version\": 1", "\"version\": 2", "version 2"},
      {"\"version\": 1", "\"version\": -1", "version"},
      {"\"step\": 2", "\"step\": 2, \"step\": 2", "twice"},
      {"\"step\": 2", "\"step\": 18446744073709551615", "step"},
      {"\"step\": 2", "\"step\": 2.5", "step"},
      {"\"step\": 2", "\"step\": \"2\"", "step"},
      {"\"step\": 2", "\"step\": 2, \"extra field\": 1", "unknown"},
      {"\"step\": 2,", "", "step is missing"},
      {"\"software\": {", "\"software\": [{", "JSON"},
      {"\"software\": {", "\"software\": {\"a\": [[[[[[[[[[]]]]]]]]]], ", "deep"},
      {"\"trireme\":\"0.1.0\"", "\"trireme\":1", "text"},
      {"\"block_bytes\": 64", "\"block_bytes\": 0", "block_bytes"},
      {"\"block_bytes\": 64", "\"block_bytes\": 60", "block_bytes"},
      {"\"block_bytes\": 64", "\"block_bytes\": 1099511627776", "block_bytes"},
      {"\"block_bytes\": 64", "\"block_bytes\": 128", "checksums"},
      {"{\"name\":\"config.json\"", "{\"name\":\"../config.json\"", "plain"},
      {"{\"name\":\"config.json\"", "{\"name\":\"/etc/passwd\"", "plain"},
      {"{\"name\":\"config.json\"", "{\"name\":\"\"", "plain"},
      {"{\"name\":\"config.json\"", "{\"name\":\".config\"", "plain"},
      {"{\"name\":\"config.json\"", "{\"name\":\"a\\u0000b\"", "plain"},
      {"{\"name\":\"tokenizer.json\"", "{\"name\":\"config.json\"", "config.json"},
      {"\"bytes\":2,\"head_bytes\":2", "\"bytes\":2,\"head_bytes\":3", "head"},
      {"\"bytes\":2,\"head_bytes\":2", "\"bytes\":3,\"head_bytes\":2", "accounted"},
      {"\"bytes\":2,\"head_bytes\":2", "\"bytes\":9223372036854775807,\"head_bytes\":2",
       "accounted"},
      {"\"kind\":\"moment\"", "\"kind\":\"../x\"", "kind"},
      {"\"dtype\":\"I64\"", "\"dtype\":\"I65\"", "I65"},
      {"\"shape\":[11]", "\"shape\":[12]", "11 of its 12"},
      {"\"shape\":[11]", "\"shape\":[10]", "does not fit"},
      {"\"shape\":[11]", "\"shape\":[-11]", "shape"},
      {"\"shape\":[11]", "\"shape\":[11,1]", "does not fit"},
      {"\"shape\":[0,4]", "\"shape\":[9223372036854775807,4]", "63 bits"},
      {"\"shape\":[0,4]", "\"shape\":[4611686018427387904]", "too large"},
      {"\"name\":\"rows/user.keys\"", "\"name\":\"a\"", "out of order"},
      {"\"name\":\"nothing\"", "\"name\":\"model.norm.weight\"", "twice"},
      {"\"file\":\"row", "\"file\":\"cow", "not among the files"},
  };
  EXPECT_EQ(refusal(sound), "");
  for (const Edit& edit : edits) {
    std::string text = sound;
    const size_t at = text.find(edit.from);
    ASSERT_NE(at, text.npos) << edit.from;
    text.replace(at, std::string_view(edit.from).size(), edit.to);
    EXPECT_NE(refusal(text).find("digest"), text.npos) << edit.to;
    const std::string message = refusal(with_digest(text));
    EXPECT_NE(message.find(edit.reason), text.npos) << edit.to << ": \"" << message << '"';
  }
}

// Chunks of one tensor with each of their numbers moved.
TEST(Manifest, RefusesChunksThatDoNotCoverEachByteAndElementOnce) {
  Manifest sound = parse_manifest(saved_manifest(), "m");
  const auto refused = [&](auto&& spoil) {
    Manifest manifest = sound;
    const auto tensor = std::ranges::find_if(manifest.tensors, [](const TensorRecord& t) {
      return t.chunks.size() > 1 && t.shape.size() > 1;
    });
    spoil(*tensor);
    return problem_of(manifest);
  };
  EXPECT_EQ(problem_of(sound), "");
  EXPECT_NE(refused([](auto& t) { t.chunks[0].offset += 8; }), "");
  EXPECT_NE(refused([](auto& t) { t.chunks[0].offset = -8; }), "");
  EXPECT_NE(refused([](auto& t) { t.chunks[0].offset = INT64_MAX; }), "");
  EXPECT_NE(refused([](auto& t) { t.chunks[0].bytes = INT64_MAX; }), "");
  EXPECT_NE(refused([](auto& t) { t.chunks[0].bytes -= 4; }), "");
  EXPECT_NE(refused([](auto& t) { t.chunks[0].crc32c.pop_back(); }), "");
  EXPECT_NE(refused([](auto& t) { t.chunks[0].crc32c.push_back(0); }), "");
  EXPECT_NE(refused([](auto& t) { t.chunks.pop_back(); }), "");
  EXPECT_NE(refused([](auto& t) { t.chunks.push_back(t.chunks[0]); }), "");
  EXPECT_NE(refused([](auto& t) { t.chunks[0].slice.dims[0] = std::vector<Range>{Range{1, 0}}; }),
            "");
  EXPECT_NE(refused([](auto& t) { t.chunks[0].slice.dims[0] = std::vector<Range>{Range{-1, 3}}; }),
            "");
  EXPECT_NE(refused([](auto& t) {
              t.chunks[0].slice.dims[0] = std::vector<Range>{Range{0, 2}, Range{1, 3}};
            }),
            "");
  EXPECT_NE(refused([](auto& t) { t.chunks[0].slice.dims.pop_back(); }), "");
  EXPECT_NE(refused([](auto& t) { t.chunks[0].slice = t.chunks[1].slice; }), "");
}

// The check of overlaps against one that counts how often each element is covered: random cuts, of
// which half have one range moved.
TEST(Manifest, FindsOverlapsLikeOneThatCountsElements) {
  int sound = 0, unsound = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    Dice dice(seed, "overlap");
    Shape shape;
    for (int64_t dims = dice.below(4); dims > 0; --dims) shape.push_back(1 + dice.below(5));
    Manifest manifest;
    manifest.block_bytes = 8;
    TensorRecord tensor{"t", "weight", DType::uint8, shape, {}};
    int64_t end = 0;
    for (Slice& slice : random_cut(shape, dice)) {
      if (slice.empty()) continue;
      if (!shape.empty() && dice.below(4) == 0) {
        auto& ranges = slice.dims[static_cast<size_t>(dice.below(int64_t(shape.size())))];
        const int64_t size = ranges[0].size();
        if (ranges.size() == 1)
          ranges[0].begin = dice.below(size + 1), ranges[0].end = ranges[0].begin + size;
        if (!slice_problem(slice, shape).empty()) continue;
      }
      const int64_t numel = slice.numel();
      tensor.chunks.push_back(
          {"f", end, numel, slice, std::vector<uint32_t>(size_t(numel + 7) / 8)});
      end += numel;
    }
    std::vector<int> covered;
    const auto numel = static_cast<size_t>(numel_of(shape));
    for (size_t flat = 0; flat < numel; ++flat) {
      int times = 0;
      Bytes one(numel);
      one[flat] = std::byte{1};
      for (const ChunkRecord& chunk : tensor.chunks)
        for (std::byte b : naive_slice({"t", "weight", DType::uint8, shape}, one, chunk.slice))
          times += b == std::byte{1};
      covered.push_back(times);
    }
    const bool once = std::ranges::all_of(covered, [](int times) { return times == 1; });
    (once ? sound : unsound) += 1;
    manifest.tensors.push_back(tensor);
    if (end > 0) manifest.files.push_back({"f", end, 0, 0});
    ASSERT_EQ(problem_of(manifest).empty(), once)
        << "seed " << seed << ": " << problem_of(manifest);
  }
  EXPECT_GT(sound, 200);
  EXPECT_GT(unsound, 200);
}

// 20,000 manifests with bytes changed, dropped or doubled and a digest that fits.
TEST(Manifest, SurvivesDamageThatItsDigestCovers) {
  const std::string sound = saved_manifest();
  Dice dice(5, "fuzz");
  constexpr std::string_view kTokens = "{}[],:\"0189-eE.\\u\xff\x00 ntf";
  for (int round = 0; round < 20'000; ++round) {
    std::string text = sound;
    for (int64_t edits = 1 + dice.below(3); edits > 0; --edits) {
      const auto at = static_cast<size_t>(dice.below(static_cast<int64_t>(text.size()) - 60));
      if (const auto kind = dice.below(4); kind == 0) text[at] = static_cast<char>(dice.below(256));
      else if (kind == 1) text[at] = kTokens[static_cast<size_t>(dice.below(kTokens.size()))];
      else if (kind == 2) text.erase(at, static_cast<size_t>(1 + dice.below(3)));
      else text.insert(at, text.substr(at, static_cast<size_t>(1 + dice.below(8))));
    }
    try {
      ASSERT_EQ(problem_of(parse_manifest(with_digest(text), "m")), "");
    } catch (const DamagedError&) {
    } catch (const InputError&) {
    }
  }
}

// Malice computes a digest too.
void survive_hostile_manifests(uint64_t seed, uint64_t count) {
  const std::string sound = saved_manifest();
  survive(seed, count, [&](Mutator& mutator) {
    const bool structure = mutator.below(3);
    const std::string text = structure ? mutator.structure(sound) : mutator.bytes(sound);
    const size_t end = text.rfind(structure ? ",\"digest\"" : ",\n \"digest\"");
    parse_manifest(end == text.npos ? text : with_digest(text.substr(0, end) + ",\n \"digest\""),
                   "m");
  });
}

TEST(Manifest, SurvivesHostileOnesThatFitTheirDigest) { survive_hostile_manifests(1, 3000); }

TEST(LongManifest, SurvivesManyHostileOnes) { survive_hostile_manifests(2, 200'000); }

}  // namespace
}  // namespace trireme
