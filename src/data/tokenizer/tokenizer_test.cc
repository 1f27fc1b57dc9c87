#include "data/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/test_mutation.h"
#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/test_text.h"
#include "data/tokenizer/train.h"

namespace trireme {
namespace {

using nlohmann::json;

// Models of all published kinds against the library that made them: tests/test_tokenizer.py.

Tokenizer small_byte_level() {
  static const std::vector<std::string_view> documents = {
      "the cat sat on the mat, the end. don't 123 123"};
  return train_bpe(documents, {.vocab = 290, .progress = {}});
}

// A small file of the byte-fallback kind, as Llama 2 has it.
json llama2() {
  json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  char name[8];
  for (int b = 0; b < 256; ++b) {
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    vocab[name] = 3 + b;
  }
  const std::vector<std::string> more = {"\u2581", "a", "b", "\u00E9", "\u2581a", "ab", "\u2581ab"};
  for (const auto& token : more) vocab[token] = vocab.size();
  const auto added = [](int id, const char* content) {
    return json{
        {"id", id},        {"content", content}, {"special", true},     {"normalized", false},
        {"lstrip", false}, {"rstrip", false},    {"single_word", false}};
  };
  const auto replace = [](const char* from, const char* to) {
    return json{{"type", "Replace"}, {"pattern", {{"String", from}}}, {"content", to}};
  };
  return {
      {"version", "1.0"},
      {"added_tokens", {added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")}},
      {"normalizer",
       {{"type", "Sequence"},
        {"normalizers", {{{"type", "Prepend"}, {"prepend", "\u2581"}}, replace(" ", "\u2581")}}}},
      {"pre_tokenizer", nullptr},
      {"post_processor",
       {{"type", "TemplateProcessing"},
        {"single",
         {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
          {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
        {"pair", json::array()},
        {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
      {"decoder",
       {{"type", "Sequence"},
        {"decoders",
         {replace("\u2581", " "),
          {{"type", "ByteFallback"}},
          {{"type", "Fuse"}},
          {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
      {"model",
       {{"type", "BPE"},
        {"unk_token", "<unk>"},
        {"fuse_unk", true},
        {"byte_fallback", true},
        {"vocab", vocab},
        {"merges", {"a b", "\u2581 ab", "\u2581 a"}}}}};
}

Tokenizer parse(const json& document) { return Tokenizer::parse(document.dump(), "t.json"); }

std::string refusal(const json& document) {
  try {
    parse(document);
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Tokenizer, ByteLevelKeepsAnyBytes) {
  const Tokenizer tokenizer = small_byte_level();
  for (uint64_t draw = 0; draw < 500; ++draw) {
    const std::string text = ugly_text(draw, 40, true);
    ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << "draw " << draw;
  }
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(all)), all);
  EXPECT_TRUE(tokenizer.encode("").empty());
}

TEST(Tokenizer, SpecialTokensInTextAreIdsOnlyIfWanted) {
  const Tokenizer tokenizer = small_byte_level();
  const std::string text = "the<|endoftext|>cat";
  const auto ids = tokenizer.encode(text);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), 1);
  std::vector<int32_t> plain;
  tokenizer.encode_plain(text, plain);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 0), 0);
  EXPECT_EQ(tokenizer.decode(plain), text);
  EXPECT_EQ(tokenizer.decode(ids), text);
  EXPECT_EQ(tokenizer.decode(ids, true), "thecat");
  EXPECT_EQ(tokenizer.end_of_text(), 0);
}

TEST(Tokenizer, TellsOfItsTokens) {
  const Tokenizer tokenizer = small_byte_level();
  const auto id = tokenizer.id_of("\u0120the");
  ASSERT_TRUE(id);
  EXPECT_EQ(tokenizer.bytes_of(*id), " the");
  EXPECT_EQ(tokenizer.token_of(*id), "\u0120the");
  EXPECT_EQ(tokenizer.bytes_of(0), "");
  EXPECT_EQ(tokenizer.bytes_of(-1), "");
  EXPECT_EQ(tokenizer.bytes_of(1 << 30), "");
  EXPECT_EQ(tokenizer.id_of("no such token"), std::nullopt);
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{-5, *id, 1 << 30}), " the");
}

TEST(Tokenizer, ReadsAndWritesByteFallback) {
  const Tokenizer tokenizer = parse(llama2());
  const auto id = [&](const char* token) { return *tokenizer.id_of(token); };
  EXPECT_EQ(tokenizer.encode("ab a"), (std::vector<int32_t>{id("\u2581ab"), id("\u2581a")}));
  EXPECT_EQ(
      tokenizer.encode("\u00E9\u4E2D"),
      (std::vector<int32_t>{id("\u2581"), id("\u00E9"), id("<0xE4>"), id("<0xB8>"), id("<0xAD>")}));
  EXPECT_EQ(tokenizer.encode("\xFF"), (std::vector<int32_t>{id("\u2581"), id("<0xFF>")}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("ab \u4E2D a")), "ab \u4E2D a");
  EXPECT_EQ(tokenizer.bytes_of(id("<0xE4>")), "\xE4");
  EXPECT_EQ(tokenizer.bytes_of(id("\u2581ab")), " ab");
  EXPECT_EQ(std::vector<int32_t>(tokenizer.prefix().begin(), tokenizer.prefix().end()),
            std::vector<int32_t>{1});
  EXPECT_TRUE(tokenizer.suffix().empty());
  EXPECT_EQ(tokenizer.end_of_text(), 2);
}

TEST(Tokenizer, ItsJsonMakesItAgain) {
  for (const std::string& text : {small_byte_level().to_json(), llama2().dump()}) {
    const Tokenizer first = Tokenizer::parse(text, "first"),
                    second = Tokenizer::parse(first.to_json(), "second");
    EXPECT_EQ(first.fingerprint(), second.fingerprint());
    EXPECT_EQ(first.encode("a cat"), second.encode("a cat"));
  }
}

TEST(Tokenizer, ItsFingerprintIsOfContent) {
  json document = llama2();
  const uint64_t fingerprint = parse(document).fingerprint();
  EXPECT_EQ(Tokenizer::parse(document.dump(7), "indented").fingerprint(), fingerprint);
  document["model"]["merges"] = json::array({{"a", "b"}, {"\u2581", "ab"}, {"\u2581", "a"}});
  EXPECT_EQ(parse(document).fingerprint(), fingerprint);
  document["model"]["merges"] = {"\u2581 ab", "a b", "\u2581 a"};
  EXPECT_NE(parse(document).fingerprint(), fingerprint);
  document = llama2();
  document["model"]["fuse_unk"] = false;
  EXPECT_NE(parse(document).fingerprint(), fingerprint);
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, bool skip_special,
                     bool whole_characters) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = decoder.push(id);
    if (whole_characters) {
      EXPECT_EQ(unicode::incomplete_tail(piece), 0u);
    }
    text += piece;
  }
  return text + decoder.finish();
}

TEST(StreamDecoder, ItsPiecesAreTheWholeText) {
  const Tokenizer byte_level = small_byte_level(), fallback = parse(llama2());
  for (const Tokenizer* tokenizer : {&byte_level, &fallback}) {
    for (uint64_t draw = 0; draw < 300; ++draw) {
      const RandomStream random(11, "ids", draw);
      std::vector<int32_t> ids;
      for (size_t i = 0; i < 1 + draw % 30; ++i)
        ids.push_back(static_cast<int32_t>(random.below(i, tokenizer->vocab_size())));
      for (const bool skip : {false, true})
        ASSERT_EQ(streamed(*tokenizer, ids, skip, false), tokenizer->decode(ids, skip))
            << "draw " << draw;
      const auto encoded = tokenizer->encode(ugly_text(draw, 20, false));
      ASSERT_EQ(streamed(*tokenizer, encoded, false, true), tokenizer->decode(encoded))
          << "draw " << draw;
    }
  }
}

TEST(StreamDecoder, HoldsBackHalfACharacter) {
  const Tokenizer tokenizer = small_byte_level();
  StreamDecoder decoder(tokenizer);
  const auto ids = tokenizer.encode("\U0001F600");
  ASSERT_EQ(ids.size(), 4u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(decoder.push(ids[i]), "");
  EXPECT_EQ(decoder.push(ids[3]), "\U0001F600");
  EXPECT_EQ(decoder.push(ids[0]), "");
  EXPECT_EQ(decoder.finish(), "\xF0");
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const Tokenizer tokenizer = small_byte_level();
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> expected;
  for (uint64_t draw = 0; draw < 64; ++draw) {
    texts.push_back(ugly_text(draw, 200, true));
    expected.push_back(tokenizer.encode(texts.back()));
  }
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(tokenizer.encode(texts[i]), expected[i]);
    });
}

TEST(Tokenizer, RefusesByNameWhatItDoesNotHave) {
  const auto changed = [](const char* pointer, json value) {
    json document = llama2();
    document[json::json_pointer(pointer)] = std::move(value);
    return refusal(document);
  };
  const auto expect_named = [](const std::string& message, std::string_view named) {
    EXPECT_NE(message.find(named), std::string::npos) << message << " lacks " << named;
    EXPECT_TRUE(message.starts_with("t.json")) << message;
  };
  expect_named(changed("/model/type", "Unigram"), "Unigram");
  expect_named(changed("/model/dropout", 0.1), "dropout");
  expect_named(changed("/model/end_of_word_suffix", "</w>"), "end_of_word_suffix");
  expect_named(changed("/model/news", 1), "news");
  expect_named(changed("/model/unk_token", "zzz"), "zzz");
  expect_named(changed("/model/fuse_unk", 1), "fuse_unk");
  expect_named(changed("/version", "2.0"), "2.0");
  expect_named(changed("/truncation", json{{"max_length", 1}}), "truncation");
  expect_named(changed("/padding", json{{"strategy", "x"}}), "padding");
  expect_named(changed("/extra", nullptr), "extra");
  expect_named(changed("/normalizer/type", "Precompiled"), "Precompiled");
  expect_named(changed("/normalizer/normalizers/0/type", "Nmt"), "normalizer.normalizers[0]");
  expect_named(changed("/normalizer/normalizers/1/pattern", json{{"Glob", "x"}}), "Regex");
  expect_named(changed("/normalizer/normalizers/1/more", true), "more");
  expect_named(changed("/pre_tokenizer", json{{"type", "UnicodeScripts"}}), "UnicodeScripts");
  expect_named(changed("/pre_tokenizer", json{{"type", "Split"},
                                              {"pattern", {{"Regex", "\\h"}}},
                                              {"behavior", "Isolated"},
                                              {"invert", false}}),
               "\\h");
  expect_named(changed("/pre_tokenizer", json{{"type", "Split"},
                                              {"pattern", {{"String", "x"}}},
                                              {"behavior", "Shattered"},
                                              {"invert", false}}),
               "Shattered");
  expect_named(changed("/pre_tokenizer", json::array()), "pre_tokenizer");
  expect_named(changed("/decoder/decoders/1/type", "CTC"), "CTC");
  expect_named(
      changed("/post_processor/single/0", json{{"SpecialToken", {{"id", "<x>"}, {"type_id", 0}}}}),
      "<x>");
  expect_named(changed("/post_processor/special_tokens/<s>/ids", {99999}), "99999");
}

TEST(Tokenizer, RefusesHostileFiles) {
  const auto changed = [](const char* pointer, json value) {
    json document = llama2();
    document[json::json_pointer(pointer)] = std::move(value);
    return refusal(document);
  };
  for (const json& id : {json(-1), json(1.5), json("1"), json(nullptr), json(uint64_t{1} << 24),
                         json(UINT64_MAX), json(1e300)})
    EXPECT_NE(changed("/model/vocab/a", id), "accepted") << id;
  EXPECT_NE(changed("/model/vocab/a", 0).find("'<unk>' and 'a' have the same id"),
            std::string::npos);
  for (const json& merge : {json("a zz"), json("ab"), json("a b b"), json(""), json({"a"}),
                            json({"a", 1}), json(7), json("b a")})
    EXPECT_NE(changed("/model/merges/0", merge), "accepted") << merge;
  EXPECT_NE(changed("/model/merges", "a b"), "accepted");
  EXPECT_NE(changed("/model/vocab", json::array()), "accepted");
  EXPECT_NE(changed("/model", nullptr), "accepted");
  EXPECT_NE(changed("/added_tokens/1/id", 77), "accepted");
  EXPECT_NE(changed("/added_tokens/1/content", ""), "accepted");
  EXPECT_NE(changed("/added_tokens/1/content", "<unk>"), "accepted");
  EXPECT_NE(changed("/added_tokens/1", 1), "accepted");
  EXPECT_NE(changed("/decoder/decoders/3/start", -1), "accepted");
  EXPECT_NE(changed("/decoder/decoders/3/content", "ab"), "accepted");
  for (const std::string text :
       {"", "{", "[]", "null", "{\"model\": \xFF}", "{\"a\": \"\\ud800\"}"})
    EXPECT_THROW(Tokenizer::parse(text, "t.json"), InputError) << text;
  EXPECT_THROW(Tokenizer::parse(std::string(10'000'000, '['), "deep"), InputError);
  json nested = {{"type", "Sequence"}, {"normalizers", json::array()}};
  for (int i = 0; i < 60; ++i) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  EXPECT_NE(changed("/normalizer", nested), "accepted");
  EXPECT_THROW(Tokenizer::load("/no/such/tokenizer.json"), InputError);
}

// Every cut of a file, and bytes changed at random: refused or accepted, and never anything else.
TEST(Tokenizer, SurvivesDamage) {
  const std::string text = llama2().dump();
  const auto try_parse = [](const std::string& damaged) {
    try {
      Tokenizer::parse(damaged, "damaged").encode("ab \u4E2D");
    } catch (const InputError&) {
    }
  };
  for (size_t length = 0; length < text.size(); length += 7) try_parse(text.substr(0, length));
  for (uint64_t draw = 0; draw < 2000; ++draw) {
    const RandomStream random(13, "damage", draw);
    std::string damaged = text;
    for (uint64_t i = 0; i < 1 + draw % 3; ++i)
      damaged[random.below(2 * i, damaged.size())] = "\"{}[]:,0x\xFF"[random.below(2 * i + 1, 10)];
    try_parse(damaged);
  }
}

// Values anywhere in a file replaced by others, so that its JSON stays whole and its sense does
// not.
void expect_survival(const json& whole, uint64_t draws) {
  const std::vector<json> values = {nullptr,
                                    true,
                                    0,
                                    -1,
                                    7,
                                    1e300,
                                    UINT64_MAX,
                                    "",
                                    "a",
                                    "\u2581",
                                    "(",
                                    "\\p{L}+",
                                    "Sequence",
                                    "ByteLevel",
                                    "Metaspace",
                                    "Split",
                                    "Replace",
                                    "Strip",
                                    json::array(),
                                    json::object(),
                                    {{"String", "a"}},
                                    {{"Regex", "a|b+"}},
                                    {0, 1},
                                    {"a", "b"}};
  const json flat = whole.flatten();
  std::vector<std::string> pointers;
  for (const auto& [pointer, value] : flat.items()) {
    pointers.push_back(pointer);
    pointers.push_back(pointer.substr(0, pointer.rfind('/')));  // and what holds it
  }
  for (uint64_t draw = 0; draw < draws; ++draw) {
    const RandomStream random(17, "values", draw);
    json damaged = whole;
    for (uint64_t i = 0; i < 1 + draw % 4; ++i) {
      const json::json_pointer at(pointers[random.below(2 * i, pointers.size())]);
      if (damaged.contains(at)) damaged[at] = values[random.below(2 * i + 1, values.size())];
    }
    try {
      const Tokenizer tokenizer = parse(damaged);
      tokenizer.decode(tokenizer.encode("ab a\u00E9\u4E2D<s> 12"));
    } catch (const InputError&) {
    }
  }
}

TEST(Tokenizer, SurvivesFilesThatMakeNoSense) {
  json document = llama2();
  document["model"]["vocab"] = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2},
                                {"a", 3},     {"b", 4},   {"ab", 5}};
  document["model"]["merges"] = {"a b"};
  expect_survival(document, 2000);
}

TEST(LongTokenizer, SurvivesManyFilesThatMakeNoSense) {
  expect_survival(llama2(), 20'000);
  expect_survival(json::parse(small_byte_level().to_json()), 20'000);
}

// Cut, flipped, repeated bytes, huge numbers, deep nests, long texts, keys that come twice.
TEST(LongTokenizer, SurvivesDamagedAndHostileFiles) {
  const std::string files[] = {llama2().dump(), small_byte_level().to_json()};
  testing::survive(19, 20'000, [&](testing::Mutator& mutator) {
    const Tokenizer tokenizer =
        Tokenizer::parse(mutator.either(files[mutator.below(std::size(files))]), "t.json");
    tokenizer.decode(tokenizer.encode("ab a\u00E9\u4E2D<s> 12"));
  });
}

TEST(LoneSurrogates, BecomeTheReplacementCharacter) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("\ud800")", R"("\ufffd")"},
      {R"("\uDC00x")", R"("\ufffdx")"},
      {R"("\ud83d\ude00")", R"("\ud83d\ude00")"},
      {R"("\ud83d\ud83d\ude00")", R"("\ufffd\ud83d\ude00")"},
      {R"("\\ud800")", R"("\\ud800")"},
      {R"("\\\ud800")", R"("\\\ufffd")"},
      {R"("\ud800\n")", R"("\ufffd\n")"},
      {R"("\ud8)", R"("\ud8)"},
      {R"("\)", R"("\)"},
  };
  for (const auto& [from, to] : cases) {
    uint64_t replaced = 0;
    EXPECT_EQ(replace_lone_surrogates(from, replaced), to);
    EXPECT_EQ(replaced, std::string(from) == to ? 0u : 1u) << from;
  }
}

}  // namespace
}  // namespace trireme
