#include "data/tokenizer/tokenizer.h"

#include "base/error.h"
#include "data/tokenizer/tokenizer_parts.h"
#include "data/tokenizer/unicode.h"

namespace trireme {

bool Vocabulary::add(int32_t id, std::string spelled) {
  if (id < size() && tokens_[id].exists) return false;
  if (!ids_.emplace(spelled, id).second) return false;
  if (id >= size()) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[id].spelled = std::move(spelled);
  tokens_[id].exists = true;
  return true;
}

const Vocabulary::Token* Vocabulary::find(int32_t id) const {
  return id >= 0 && id < size() && tokens_[id].exists ? &tokens_[id] : nullptr;
}

std::optional<int32_t> Vocabulary::id_of(std::string_view spelled) const {
  const auto found = ids_.find(spelled);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::unique_ptr<TokenizerScratch> ScratchPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!waiting_.empty()) {
      auto scratch = std::move(waiting_.back());
      waiting_.pop_back();
      return scratch;
    }
  }
  return std::make_unique<TokenizerScratch>();
}

void ScratchPool::give_back(std::unique_ptr<TokenizerScratch> scratch) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(scratch));
}

namespace {

// A scratch space for the length of one call.
class Borrowed {
 public:
  explicit Borrowed(ScratchPool& pool) : pool_(pool), scratch_(pool.take()) {}
  ~Borrowed() { pool_.give_back(std::move(scratch_)); }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  TokenizerScratch& operator*() { return *scratch_; }

 private:
  ScratchPool& pool_;
  std::unique_ptr<TokenizerScratch> scratch_;
};

struct EncodeWords {
  const Bpe& bpe;
  BpeScratch& scratch;
  std::vector<int32_t>& out;

  static void take(void* self, std::string_view word) {
    auto& to = *static_cast<EncodeWords*>(self);
    to.bpe.encode(word, to.scratch, to.out);
  }
};

}  // namespace

void Tokenizer::Parts::encode(std::string_view text, bool plain, std::vector<int32_t>& out) const {
  TRIREME_CHECK(text.size() < (size_t{1} << 31), "tokenizing: a text of ", text.size(),
                " bytes; it must be shorter than 2 GiB\nnext: cut it into documents");
  Borrowed borrowed(scratch);
  auto& parts = (*borrowed).parts;
  parts.clear();
  raw_tokens.split(text, plain, parts);
  for (const auto [part, id] : parts) {
    if (id >= 0) out.push_back(id);
    else encode_between(part, part.data() == text.data(), plain, *borrowed, out);
  }
}

void Tokenizer::Parts::encode_between(std::string_view text, bool at_start, bool plain,
                                      TokenizerScratch& space, std::vector<int32_t>& out) const {
  EncodeWords words{bpe, space.bpe, out};
  const WordSink sink{&words, EncodeWords::take};
  std::string changed;
  if (!normalizer.empty()) {
    changed = normalizer(text, space.pre_tokenizer.pattern);
    text = changed;
  }
  if (normalized_tokens.empty()) return pre_tokenizer(text, at_start, space.pre_tokenizer, sink);
  auto& parts = space.normalized_parts;
  parts.clear();
  normalized_tokens.split(text, plain, parts);
  for (const auto [part, id] : parts) {
    if (id >= 0) out.push_back(id);
    else pre_tokenizer(part, at_start && part.data() == text.data(), space.pre_tokenizer, sink);
  }
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids;
  parts_->encode(text, false, ids);
  return ids;
}

void Tokenizer::encode(std::string_view text, std::vector<int32_t>& append_to) const {
  parts_->encode(text, false, append_to);
}

void Tokenizer::encode_plain(std::string_view text, std::vector<int32_t>& append_to) const {
  parts_->encode(text, true, append_to);
}

std::span<const int32_t> Tokenizer::prefix() const { return parts_->around.prefix; }
std::span<const int32_t> Tokenizer::suffix() const { return parts_->around.suffix; }

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const auto* token = parts_->vocabulary.find(id);
    if (token && !(skip_special && token->special)) tokens.push_back(token->spelled);
  }
  return parts_->decoder(std::move(tokens));
}

int32_t Tokenizer::vocab_size() const { return parts_->vocabulary.size(); }

std::optional<int32_t> Tokenizer::id_of(std::string_view token) const {
  return parts_->vocabulary.id_of(token);
}

std::string_view Tokenizer::token_of(int32_t id) const {
  const auto* token = parts_->vocabulary.find(id);
  return token ? std::string_view(token->spelled) : std::string_view();
}

std::string_view Tokenizer::bytes_of(int32_t id) const {
  const auto* token = parts_->vocabulary.find(id);
  return token ? std::string_view(token->bytes) : std::string_view();
}

bool Tokenizer::is_special(int32_t id) const {
  const auto* token = parts_->vocabulary.find(id);
  return token && token->special;
}

std::optional<int32_t> Tokenizer::end_of_text() const {
  static constexpr std::string_view names[] = {
      "<|endoftext|>", "<|end_of_text|>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
      "</s>",          "<eos>",
  };
  for (const auto name : names) {
    const auto id = id_of(name);
    if (id && is_special(*id)) return id;
  }
  return std::nullopt;
}

const std::string& Tokenizer::to_json() const { return parts_->json; }
uint64_t Tokenizer::fingerprint() const { return parts_->fingerprint; }

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special) {}

// The text of a token may depend on those before it only through the first one that gives text, and
// on those after it only within a run of byte tokens. So the former is kept and decoded along.
std::string StreamDecoder::push(int32_t id) {
  const auto& parts = *tokenizer_.parts_;
  if (parts.decoder.is_byte_level()) {
    held_ += tokenizer_.decode({&id, 1}, skip_special_);
    const size_t whole = held_.size() - unicode::incomplete_tail(held_);
    std::string text = held_.substr(0, whole);
    held_.erase(0, whole);
    return text;
  }
  const auto* token = parts.vocabulary.find(id);
  if (!token || (skip_special_ && token->special)) return {};  // as if it were not there
  ids_.push_back(id);
  if (!parts.decoder.streams() || parts.decoder.is_byte_token(token->spelled)) return {};
  return settle();
}

std::string StreamDecoder::settle() {
  std::string text = tokenizer_.decode(ids_, skip_special_);
  std::string fresh = text.substr(given_);
  if (begun_ > 0) ids_.resize(begun_);
  else if (!text.empty()) begun_ = ids_.size(), given_ = text.size();
  return fresh;
}

std::string StreamDecoder::finish() {
  std::string rest = std::exchange(held_, {});
  if (!ids_.empty()) rest += settle();
  ids_.clear();
  begun_ = given_ = 0;
  return rest;
}

}  // namespace trireme
