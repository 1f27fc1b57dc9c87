// Text to token ids and back, as Hugging Face's `tokenizers` does it for a BPE tokenizer.json.
//
// The ids are those that `tokenizers` gives, for any UTF-8 (tests/test_tokenizer.py holds them to
// it). docs/tokenizer.md lists the features; a file that asks for another one is refused by its
// name.
//
// Text that is no UTF-8: each byte that is part of no character counts as a character of its own,
// which is neither letter, digit nor space. Byte-level and byte-fallback models give it the id of
// that byte, so that byte-level decode(encode(x)) == x for any bytes x (unless a normalizer changes
// x).
//
// Threads: immutable after construction, any thread. Each call borrows one of a few scratch spaces
//          (a cache of words, 3 MB); as many exist as calls were ever made at once.
// Cost:    loading 0.1 s per 100,000 tokens; encoding 20 to 60 MB/s a core; text of n bytes that is
//          one word O(n log n).
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

namespace fs = std::filesystem;

class Tokenizer {
 public:
  // A Hugging Face tokenizer.json. InputError names the file and what in it is wrong or not
  // supported.
  static Tokenizer load(const fs::path& tokenizer_json);
  // The same from memory; `origin` is what errors call it.
  static Tokenizer parse(std::string_view json, std::string_view origin);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // `tokenizers`' encode(text, add_special_tokens=False): added and special tokens that the text
  // spells become their ids.
  std::vector<int32_t> encode(std::string_view text) const;
  void encode(std::string_view text, std::vector<int32_t>& append_to) const;
  // The form for corpora: text that spells "<|endoftext|>" is text and gets no special id. Added
  // tokens that are not special are still recognised (`tokenizers` with encode_special_tokens).
  void encode_plain(std::string_view text, std::vector<int32_t>& append_to) const;

  // What the file's post-processor puts before and after one text:
  // encode(text, add_special_tokens=True) is prefix + encode(text) + suffix.
  std::span<const int32_t> prefix() const;
  std::span<const int32_t> suffix() const;

  // The text of the ids. Byte-level models give the very bytes, which need not be UTF-8 when the
  // ids end or begin inside a character. An id without a token gives nothing. `skip_special` leaves
  // special tokens out.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  int32_t vocab_size() const;  // the largest id + 1
  // By the spelling that the file has, for example "Ġthe", "▁the" or "<|endoftext|>".
  std::optional<int32_t> id_of(std::string_view token) const;
  std::string_view token_of(int32_t id) const;  // the reverse; empty if there is none
  std::string_view bytes_of(int32_t id) const;  // what it stands for in text; empty for special
  bool is_special(int32_t id) const;
  // The token that ends a document, found by the names that it has in published tokenizers:
  // "<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", … A special added token.
  std::optional<int32_t> end_of_text() const;

  // A tokenizer.json that `tokenizers` loads and that gives the same ids.
  const std::string& to_json() const;
  // Names the tokenizer in manifests: a hash of what the file says, not of its white space.
  uint64_t fingerprint() const;

 private:
  friend class StreamDecoder;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

// Text while its ids arrive: the pieces add up to decode() of all the ids, and no piece ends inside
// a UTF-8 character. One thread. The tokenizer outlives it.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = false);
  std::string push(int32_t id);  // what has become certain; often empty
  std::string finish();          // the rest, whole characters or not; then as new

 private:
  std::string settle();

  const Tokenizer& tokenizer_;
  bool skip_special_;
  std::vector<int32_t> ids_;  // the first ids, up to the one that gave text, then those held back
  size_t begun_ = 0;          // how many of them are the former; 0: none gave text yet
  size_t given_ = 0;          // bytes of the former's text
  std::string held_;          // byte-level: bytes of an incomplete character
};

}  // namespace trireme
