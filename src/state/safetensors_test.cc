#include "state/safetensors.h"

#include <gtest/gtest.h>
#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/random.h"
#include "state/memory_storage.h"

namespace trireme {
namespace {

std::string file_of(std::string_view header, size_t data_bytes) {
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(header.size() >> 8 * i);
  return file + std::string(header) + std::string(data_bytes, 'x');
}

SafetensorsHeader read(const std::string& file) {
  MemoryStorage storage;
  storage.set_content("f", file);
  return read_safetensors_header(*storage.open("f"), "f");
}

std::string refusal(const std::string& file) {
  try {
    read(file);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

TEST(Safetensors, ReadsAFileWrittenByHand) {
  const auto header = read(file_of(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[2,26]},)"
      R"("a":{"shape":[],"dtype":"BF16","data_offsets":[0,2]},)"
      R"("empty":{"dtype":"I64","shape":[4,0],"data_offsets":[26,26]}}   )",
      26));
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(to_string(header.entries[0]), "a bf16 []");
  EXPECT_EQ(header.entries[0].offset, header.bytes);
  EXPECT_EQ(to_string(header.entries[1]), "b fp32 [2, 3]");
  EXPECT_EQ(header.entries[1].offset, header.bytes + 2);
  EXPECT_EQ(to_string(header.entries[2]), "empty int64 [4, 0]");
  EXPECT_TRUE(read(file_of("{}", 0)).entries.empty());
}

TEST(Safetensors, ReadsWhatItWrote) {
  std::vector<SafetensorsEntry> entries = {{{"plain", {3, 2}, DType::float32}, 0},
                                           {{"quote\" \\ \n", {5}, DType::uint8}, 0},
                                           {{"ключ/🛶", {}, DType::float64}, 0},
                                           {{"", {0, 7}, DType::int16}, 0},
                                           {{"../../etc/passwd", {1}, DType::boolean}, 0}};
  std::string file = safetensors_head(entries);
  EXPECT_EQ(file.size() % 8, 0u);
  int64_t data_bytes = 0;
  for (const auto& entry : entries) data_bytes += entry.nbytes();
  const auto header = read(file + std::string(static_cast<size_t>(data_bytes), 'x'));
  EXPECT_EQ(header.bytes, static_cast<int64_t>(file.size()));
  ASSERT_EQ(header.entries.size(), entries.size());
  for (const auto& entry : entries) {
    const auto same = [&](const auto& e) {
      return static_cast<const TensorDescriptor&>(e) == entry && e.offset == entry.offset;
    };
    EXPECT_EQ(std::ranges::count_if(header.entries, same), 1) << entry.name;
  }
}

TEST(Safetensors, RefusesToWriteWhatNobodyCouldRead) {
  std::vector<SafetensorsEntry> twice = {{{"a", {1}, DType::int8}, 0},
                                         {{"a", {2}, DType::int8}, 0}};
  EXPECT_THROW(safetensors_head(twice), InputError);
  std::vector<SafetensorsEntry> binary = {{{"\xff\xfe", {1}, DType::int8}, 0}};
  EXPECT_THROW(safetensors_head(binary), InputError);
  std::vector<SafetensorsEntry> metadata = {{{"__metadata__", {1}, DType::int8}, 0}};
  EXPECT_THROW(safetensors_head(metadata), InputError);
}

TEST(Safetensors, RefusesEveryHeaderThatIsNotSound) {
  struct Case {
    const char* what;
    std::string file;
    const char* names;  // what the message has to name
  };
  const auto tensor = [](const char* fields, size_t data) {
    return file_of(std::string(R"({"t":)") + fields + "}", data);
  };
  std::string truncated = file_of(R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  std::string huge = truncated, beyond = truncated;
  for (size_t i = 0; i < 8; ++i) huge[i] = '\xff';
  beyond[3] = 1;  // 16 MB of header in a short file
  std::string deep(100'000, '[');
  const std::vector<Case> cases = {
      {"empty", "", "0 bytes"},
      {"no header", "\x02", "1 bytes"},
      {"header length of 2^64 - 1", huge, "18446744073709551615"},
      {"header beyond the file", beyond, "header claims"},
      {"data cut by one byte", truncated.substr(0, truncated.size() - 1), "t"},
      {"data with one byte more", truncated + "x", "8 bytes"},
      {"leading space", file_of(R"( {})", 0), "{"},
      {"no JSON", file_of(R"({"t":)", 0), "no JSON"},
      {"not UTF-8", file_of("{\"\xff\":1}", 0), "no JSON"},
      {"text behind the JSON", file_of(R"({} {})", 0), "no JSON"},
      {"deep", file_of("{\"t\":" + deep, 0), "array"},
      {"deep objects", file_of(R"({"t":{"dtype":{"a":{"b":{}}}}})", 0), "object"},
      {"array at the top", file_of("[]", 0), "{"},
      {"number for a tensor", tensor("3", 0), "number"},
      {"unknown dtype", tensor(R"({"dtype":"F8_E4M3","shape":[2],"data_offsets":[0,2]})", 2),
       "F8_E4M3"},
      {"our spelling", tensor(R"({"dtype":"fp32","shape":[2],"data_offsets":[0,8]})", 8), "fp32"},
      {"no dtype", tensor(R"({"shape":[2],"data_offsets":[0,8]})", 8), "needs dtype"},
      {"no shape", tensor(R"({"dtype":"F32","data_offsets":[0,8]})", 8), "needs dtype"},
      {"no offsets", tensor(R"({"dtype":"F32","shape":[2]})", 8), "needs dtype"},
      {"field twice",
       tensor(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})", 8), "dtype"},
      {"unknown field", tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})", 8),
       "field x"},
      {"negative extent", tensor(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", 8),
       "negative"},
      {"fraction", tensor(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", 8), "fraction"},
      {"beyond 63 bits",
       tensor(R"({"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]})", 8), "63"},
      {"product beyond 63 bits",
       tensor(R"({"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]})", 0), "t"},
      {"bytes beyond 63 bits",
       tensor(R"({"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]})", 0), "t"},
      {"three offsets", tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", 8), "t"},
      {"one offset", tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", 8), "t"},
      {"offsets reversed", tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", 8), "8"},
      {"bytes that do not fit the shape",
       tensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", 8), "12"},
      {"gap in front", tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[4,12]})", 12), "t"},
      {"name twice",
       file_of(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
               R"("t":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
               2),
       "twice"},
      {"overlap",
       file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
               3),
       "b"},
      {"gap",
       file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
               5),
       "b"},
      {"the same bytes twice",
       file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
               2),
       "b"},
      {"metadata that is no text", file_of(R"({"__metadata__":{"a":1}})", 0), "number"},
      {"metadata twice", file_of(R"({"__metadata__":{"a":"1","a":"2"}})", 0), "twice"}};
  EXPECT_EQ(refusal(truncated), "");
  for (const Case& c : cases) {
    const std::string message = refusal(c.file);
    EXPECT_NE(message.find(c.names), std::string::npos) << c.what << ": \"" << message << '"';
    EXPECT_LT(message.size(), 400u) << c.what;
  }
}

// 40,000 files with one to four bytes changed, dropped or doubled: each is refused, or read with
// tensors that lie inside of the file.
TEST(Safetensors, SurvivesDamagedHeaders) {
  const std::string sound = file_of(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,3],"data_offsets":[2,26]},)"
      R"("a":{"shape":[],"dtype":"BF16","data_offsets":[0,2]}})",
      26);
  const RandomStream stream(3, "fuzz");
  uint64_t draw = 0;
  const auto dice = [&](uint64_t bound) { return stream.below(draw++, bound); };
  constexpr std::string_view kTokens = "{}[],:\"0189-eE.\\u\xff\x00 ntf";
  for (int round = 0; round < 40'000; ++round) {
    std::string file = sound;
    for (uint64_t edits = 1 + dice(4); edits > 0 && !file.empty(); --edits) {
      const size_t at = dice(file.size());
      if (const auto kind = dice(4); kind == 0) file[at] = static_cast<char>(dice(256));
      else if (kind == 1) file[at] = kTokens[dice(kTokens.size())];
      else if (kind == 2) file.erase(at, 1 + dice(3));
      else file.insert(at, file.substr(at, 1 + dice(8)));
    }
    try {
      const auto header = read(file);
      int64_t end = header.bytes;
      for (const auto& entry : header.entries) {
        ASSERT_EQ(entry.offset, end);
        end += entry.nbytes();
      }
      ASSERT_EQ(end, static_cast<int64_t>(file.size()));
    } catch (const InputError&) {
    }
  }
}

}  // namespace
}  // namespace trireme
