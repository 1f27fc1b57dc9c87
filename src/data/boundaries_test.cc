#include "data/boundaries.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/test_corpus.h"

namespace trireme {
namespace {

// Three tokens, and a post-processor that puts `before` before a text.
Tokenizer tokenizer_with(const std::string& before, const std::string& end = "</s>") {
  const auto added = [](int id, const std::string& content) {
    return concat("{\"id\": ", id, ", \"content\": \"", content,
                  "\", \"special\": true, \"normalized\": false, \"single_word\": false, "
                  "\"lstrip\": false, \"rstrip\": false}");
  };
  return Tokenizer::parse(
      concat("{\"model\": {\"type\": \"BPE\", \"vocab\": {\"<s>\": 0, \"", end,
             "\": 1, \"a\": 2}, \"merges\": []}, \"added_tokens\": [", added(0, "<s>"), ", ",
             added(1, end), "], \"post_processor\": ", before.empty() ? "null" : before, "}"),
      "t.json");
}

constexpr const char* kOne =
    R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}},
        {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}})";

std::string begin_of(const Tokenizer& tokenizer, const std::string& config) {
  return boundaries_of(tokenizer, config, "c.json").begin;
}

TEST(Boundaries, ThePostProcessorBeginsATextWhereTheConfigIsSilent) {
  EXPECT_EQ(begin_of(tokenizer_with(kOne), ""), "<s>");
  EXPECT_EQ(begin_of(tokenizer_with(kOne), R"({"tokenizer_class": "PreTrainedTokenizerFast"})"),
            "<s>");
  EXPECT_EQ(begin_of(tokenizer_with(""), R"({"bos_token": "<s>"})"), "");
}

TEST(Boundaries, TheConfigGoesBefore) {
  EXPECT_EQ(begin_of(tokenizer_with(kOne), R"({"add_bos_token": false, "bos_token": "<s>"})"), "");
  const Tokenizer bare = tokenizer_with("");
  EXPECT_EQ(begin_of(bare, R"({"add_bos_token": true, "bos_token": "<s>"})"), "<s>");
  EXPECT_EQ(begin_of(bare, R"({"add_bos_token": true, "bos_token": {"content": "a"}})"), "a");
  EXPECT_EQ(begin_of(bare, R"({"tokenizer_class": "GemmaTokenizer", "bos_token": "<s>"})"), "<s>");
  EXPECT_EQ(begin_of(bare, R"({"tokenizer_class": "GPT2Tokenizer", "bos_token": "<s>"})"), "");
}

TEST(Boundaries, TheEndIsTheTokenizersOwnElseWhatTheConfigNames) {
  const char* config = R"({"eos_token": "a"})";
  EXPECT_EQ(boundaries_of(tokenizer_with(""), config, "c.json").end, "</s>");
  EXPECT_EQ(boundaries_of(tokenizer_with("", "<z>"), config, "c.json").end, "a");
  EXPECT_EQ(boundaries_of(tokenizer_with("", "<z>"), "", "c.json").end, "");
}

TEST(Boundaries, WhatContradictsItselfIsRefused) {
  const Tokenizer bare = tokenizer_with("");
  for (const char* config : {R"({"add_bos_token": 1})", R"({"add_bos_token": true})",
                             R"({"add_bos_token": true, "bos_token": "<q>"})",
                             R"({"add_bos_token": true, "bos_token": 3})",
                             R"({"tokenizer_class": "LlamaTokenizer"})", R"([])", R"({)"}) {
    try {
      boundaries_of(bare, config, "c.json");
      ADD_FAILURE() << config;
    } catch (const InputError& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("c.json")) << error.what();
    }
  }
}

TEST(Boundaries, TheConfigIsLookedForBesideTheTokenizer) {
  const testing::TempDir dir;
  const Tokenizer bare = tokenizer_with("");
  EXPECT_EQ(boundaries_beside(bare, dir.path / "tokenizer.json").begin, "");
  dir.file("tokenizer_config.json", R"({"add_bos_token": true, "bos_token": "<s>"})");
  EXPECT_EQ(boundaries_beside(bare, dir.path / "tokenizer.json").begin, "<s>");
}

}  // namespace
}  // namespace trireme
