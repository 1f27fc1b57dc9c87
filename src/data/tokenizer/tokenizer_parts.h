// What a Tokenizer consists of; parse.cc builds it, tokenizer.cc runs it.
#pragma once

#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/components.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

// All tokens by id.
class Vocabulary {
 public:
  struct Token {
    std::string spelled;  // as the file has it
    std::string bytes;    // what it stands for in text; empty for special tokens
    bool exists = false, special = false;
  };
  // False if the id or the spelling is taken. REQUIRES: id >= 0.
  bool add(int32_t id, std::string spelled);
  int32_t size() const { return static_cast<int32_t>(tokens_.size()); }  // the largest id + 1
  int32_t count() const { return static_cast<int32_t>(ids_.size()); }
  const Token* find(int32_t id) const;  // nullptr: there is none
  Token& at(int32_t id) { return tokens_[id]; }
  const std::vector<Token>& all() const { return tokens_; }
  std::optional<int32_t> id_of(std::string_view spelled) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };
  std::vector<Token> tokens_;
  std::unordered_map<std::string, int32_t, Hash, std::equal_to<>> ids_;
};

struct TokenizerScratch {
  PreTokenizerScratch pre_tokenizer;
  BpeScratch bpe;
  std::vector<TokenFinder::Part> parts, normalized_parts;
};

// Scratch spaces that wait for the next call.
class ScratchPool {
 public:
  std::unique_ptr<TokenizerScratch> take();
  void give_back(std::unique_ptr<TokenizerScratch> scratch);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<TokenizerScratch>> waiting_;  // guarded by mutex_
};

struct Tokenizer::Parts {
  std::string json;
  uint64_t fingerprint;
  Vocabulary vocabulary;
  TokenFinder raw_tokens, normalized_tokens;  // found before and after the normalizer
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  Decoder decoder;
  Surroundings around;
  mutable ScratchPool scratch;

  void encode(std::string_view text, bool plain, std::vector<int32_t>& out) const;
  void encode_between(std::string_view text, bool at_start, bool plain, TokenizerScratch& scratch,
                      std::vector<int32_t>& out) const;
};

}  // namespace trireme
