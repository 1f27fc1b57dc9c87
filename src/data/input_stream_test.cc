#include "data/input_stream.h"

#include <gtest/gtest.h>
#include <xxhash.h>
#include <zlib.h>
#include <zstd.h>

#include "base/error.h"
#include "base/random.h"
#include "data/test_corpus.h"

namespace trireme {
namespace {

using testing::TempDir;

// gzip and zstd by their libraries' one-shot functions, with checksums.
std::string gzip(const std::string& text) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&z, text.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string zstd(const std::string& text) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

std::string read_all(const fs::path& path, size_t step, std::string* hash = nullptr) {
  InputStream stream(path);
  std::string text, block(step, '\0');
  while (const size_t n = stream.read(block.data(), step)) text.append(block, 0, n);
  if (hash) *hash = stream.raw_hash();
  return text;
}

// Half words that compress, half noise that does not; several blocks long.
std::string sample_text() {
  const RandomStream random(11, "input");
  std::string text;
  for (uint64_t i = 0; text.size() < 700'000; ++i) {
    if (random.below(2 * i, 2) == 0) text += "the quick brown fox ";
    else text += static_cast<char>(random.bits(2 * i + 1));
  }
  return text;
}

class Compressed : public ::testing::TestWithParam<const char*> {
 protected:
  std::string compress(const std::string& text) const {
    const std::string ending = GetParam();
    return ending == ".gz" ? gzip(text) : ending == ".zst" ? zstd(text) : text;
  }
  fs::path file(const std::string& content) const {
    return dir.file(std::string("text.txt") + GetParam(), content);
  }
  TempDir dir;
};

TEST_P(Compressed, IsReadWholeInAnyStep) {
  const std::string text = sample_text();
  const fs::path path = file(compress(text));
  for (const size_t step : {size_t{1} << 20, size_t{65'537}, size_t{333}})
    EXPECT_TRUE(read_all(path, step) == text) << step;
}

TEST_P(Compressed, PiecesBehindOneAnotherAreOneText) {
  const std::string text = sample_text().substr(0, 300'000);
  const fs::path path = file(compress(text) + compress("") + compress("second"));
  EXPECT_TRUE(read_all(path, 4096) == text + "second");
}

TEST_P(Compressed, HashIsOfTheFileOnDisk) {
  const std::string content = compress(sample_text());
  const XXH128_hash_t hash = XXH3_128bits(content.data(), content.size());
  char expected[33];
  std::snprintf(expected, sizeof expected, "%016llx%016llx",
                static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  std::string found;
  const fs::path path = file(content);
  read_all(path, 10'000, &found);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(hash_file(path).xxh128, expected);
  EXPECT_EQ(hash_file(path).bytes, content.size());
}

TEST_P(Compressed, CutOffAnywhereItIsAnError) {
  if (*GetParam() == '\0') return;  // a plain text has no end that could be missing
  const std::string content = compress("a short text, a short text, and its end");
  EXPECT_EQ(read_all(file(content), 100).size(), 39u);
  for (size_t length = 0; length < content.size(); ++length)
    EXPECT_THROW(read_all(file(content.substr(0, length)), 100), InputError) << length;
}

TEST_P(Compressed, AFlippedByteNeverGivesAnotherText) {
  if (*GetParam() == '\0') return;
  const std::string text = sample_text().substr(0, 2000);
  const std::string content = compress(text);
  int errors = 0;
  for (size_t at = 0; at < content.size(); ++at) {
    std::string flipped = content;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x41);
    try {
      EXPECT_TRUE(read_all(file(flipped), 777) == text) << at;  // such as a time in the header
    } catch (const InputError&) {
      ++errors;
    }
  }
  EXPECT_GT(errors, static_cast<int>(content.size()) - 12);
}

INSTANTIATE_TEST_SUITE_P(Endings, Compressed, ::testing::Values("", ".gz", ".zst"));

TEST(InputStream, ZerosBehindAGzipMemberArePadding) {
  const TempDir dir;
  EXPECT_EQ(read_all(dir.file("a.gz", gzip("text") + std::string(512, '\0')), 100), "text");
  EXPECT_THROW(read_all(dir.file("b.gz", gzip("text") + "more"), 100), InputError);
}

TEST(InputStream, RefusesWhatIsNotThere) {
  const TempDir dir;
  EXPECT_THROW(InputStream(dir.path / "none.txt"), InputError);
  EXPECT_THROW(read_all(dir.path, 100), InputError);  // a folder
  EXPECT_THROW(read_all(dir.file("a.gz", "no gzip at all"), 100), InputError);
  EXPECT_THROW(read_all(dir.file("a.zst", "no zstd at all"), 100), InputError);
}

}  // namespace
}  // namespace trireme
