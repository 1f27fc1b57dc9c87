// The way of a document: scanned (its hash says its split and its place), perhaps read by the
// trainer of the tokenizer, encoded into a spill file in whatever order the threads come, copied
// from there into its place. Every pass reads the files anew, so that memory does not grow with the
// corpus; every pass checks that they are still those that were hashed.
#include "data/corpus_builder.h"

#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"
#include "data/document_reader.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/train.h"

namespace trireme {
namespace {

constexpr uint64_t kTrainBytesMax =
    256'000'000;  // of text, for a tokenizer: statistics settle long before
// Seeds of three hashes that must not follow from one another.
constexpr uint64_t kContentSeed = 0, kSplitSeed = 1, kOrderSeed = 2;

struct BuildDocument {
  uint64_t hash, split_hash, order;  // of content, content, and content with its place in the files
  uint64_t file, line, bytes;
  uint64_t spill = 0, tokens = 0;  // in the spill file
  Split split = Split::train;
};

// A file of the corpus, with the checksum that goes into the manifest.
class StoredFile {
 public:
  StoredFile(const fs::path& directory, std::string name)
      : file_(directory / name), stored_{.name = std::move(name)} {}

  void write(const void* data, size_t bytes) {
    const auto* from = static_cast<const std::byte*>(data);
    buffer_.insert(buffer_.end(), from, from + bytes);
    if (buffer_.size() >= 1 << 20) flush();
  }

  CorpusManifest::Stored commit() {
    flush();
    file_.commit();
    stored_.bytes = file_.position();
    return stored_;
  }

 private:
  void flush() {
    stored_.crc32c = crc32c(buffer_, stored_.crc32c);
    file_.write(buffer_.data(), buffer_.size());
    buffer_.clear();
  }

  AtomicFile file_;
  CorpusManifest::Stored stored_;
  std::vector<std::byte> buffer_;
};

// Takes the directory away again unless it was renamed.
struct PartialDirectory {
  fs::path path;
  ~PartialDirectory() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

class Builder {
 public:
  Builder(const CorpusOptions& options, const CorpusInputs& inputs, std::string id,
          std::optional<Tokenizer> tokenizer, const BuildProgress& progress)
      : options_(options),
        inputs_(inputs),
        tokenizer_(std::move(tokenizer)),
        progress_(progress),
        partial_{options.cache / (id + ".partial")} {
    manifest_.id = std::move(id);
  }

  void run() {
    make_directories(partial_.path);
    start_manifest();
    scan();
    split();
    if (!tokenizer_) train_tokenizer();
    describe_tokenizer();
    encode();
    sort_documents();
    write_documents();
    write_file(partial_.path / "manifest.json", to_json(manifest_));
    sync_directory(partial_.path);
    std::error_code error;
    fs::rename(partial_.path, options_.cache / manifest_.id, error);
    if (error)
      throw RunError(concat("data: cannot rename to ", (options_.cache / manifest_.id).string(),
                            ": ", error.message()));
    sync_directory(options_.cache);
    report();
  }

 private:
  void start_manifest() {
    manifest_.held_out = options_.held_out;
    for (size_t s = 0; s < inputs_.listings.size(); ++s) {
      const SourceListing& listing = inputs_.listings[s];
      manifest_.sources.push_back({.path = options_.sources[s].path,
                                   .origin = listing.origin,
                                   .licence = listing.licence,
                                   .field = options_.sources[s].field,
                                   .part = inputs_.part_of_source[s],
                                   .other_kinds = listing.other_kinds,
                                   .twice = listing.twice});
    }
    for (size_t f = 0; f < inputs_.files.size(); ++f)
      manifest_.files.push_back({.name = inputs_.files[f].file->name,
                                 .source = inputs_.source_of_file[f],
                                 .xxh128 = inputs_.hashes[f],
                                 .bytes = inputs_.files[f].file->bytes});
  }

  // One pass over the documents of `files`, which are all or some of the inputs.
  void read(std::string_view stage, std::span<const uint64_t> files,
            const std::function<void(const Chunk&, const InputFile&)>& visit) {
    std::vector<InputFile> inputs;
    std::vector<std::string> hashes;
    uint64_t total = 0;
    for (const uint64_t f : files) {
      inputs.push_back(inputs_.files[f]);
      hashes.push_back(inputs_.hashes[f]);
      total += inputs.back().file->bytes;
    }
    ReadOptions read;
    read.threads = options_.threads;
    read.document_max_bytes = options_.document_max_bytes;
    read.hashes = hashes;
    if (progress_) read.progress = [&](uint64_t bytes) { progress_(stage, bytes, total); };
    for_each_chunk(inputs, read, [&](Chunk& chunk) {
      const InputFile& input = inputs[chunk.file];
      chunk.file = files[chunk.file];
      visit(chunk, input);
    });
  }

  std::vector<uint64_t> all_files() const {
    std::vector<uint64_t> files(inputs_.files.size());
    for (size_t f = 0; f < files.size(); ++f) files[f] = f;
    return files;
  }

  // Fills documents_, in the order of files and lines.
  void scan() {
    std::mutex mutex;  // guards documents_ and manifest_
    read("reading documents, bytes", all_files(), [&](const Chunk& chunk, const InputFile& input) {
      std::vector<BuildDocument> found;
      uint64_t binary = 0, encoding = 0, empty = 0;
      for_each_document(chunk, input, [&](const Document& document) {
        binary += document.fault == Fault::binary;
        encoding += document.fault == Fault::encoding;
        empty += document.fault == Fault::empty;
        if (document.fault == Fault::none) found.push_back(describe(document, chunk.file));
      });
      const std::lock_guard lock(mutex);
      documents_.insert(documents_.end(), found.begin(), found.end());
      CorpusFile& file = manifest_.files[chunk.file];
      file.documents += found.size();
      file.left_out_documents += binary + encoding;
      CorpusSource& source = manifest_.sources[file.source];
      source.binary += binary;
      source.encoding += encoding;
      source.empty += empty;
    });
    std::ranges::sort(documents_, {},
                      [](const BuildDocument& d) { return std::pair(d.file, d.line); });
    TRIREME_CHECK(!documents_.empty(), "data.source: the corpus is empty: ", inputs_.files.size(),
                  " files, and no document with text in them",
                  "\nnext: look at data.source, and at data.field for .jsonl files");
  }

  static BuildDocument describe(const Document& document, uint64_t file) {
    const auto hash = [&](uint64_t seed) {
      return XXH3_64bits_withSeed(document.text.data(), document.text.size(), seed);
    };
    BuildDocument result{.hash = hash(kContentSeed),
                         .split_hash = hash(kSplitSeed),
                         .order = 0,
                         .file = file,
                         .line = document.line,
                         .bytes = document.text.size()};
    const uint64_t place[] = {result.hash, result.file, result.line};
    result.order = XXH3_64bits_withSeed(place, sizeof place, kOrderSeed);
    return result;
  }

  // Held out is what hashes below a threshold, the share itself: documents that are added later
  // move none to the other side. In a small corpus chance may give far too few or too many, even
  // none; there the threshold moves until a tenth more or less than asked for is held out.
  uint64_t held_out_threshold() const {
    if (options_.held_out == 0) return 0;
    std::vector<uint64_t> hashes;
    for (const BuildDocument& document : documents_) hashes.push_back(document.split_hash);
    std::ranges::sort(hashes);
    hashes.erase(std::ranges::unique(hashes).begin(), hashes.end());
    TRIREME_CHECK(hashes.size() > 1, "data.held_out: nothing can be held out of a corpus with one ",
                  "document (", documents_.size(), " copies of it)",
                  "\nnext: set data.held_out = 0, or cut the text into several documents");
    const auto threshold = static_cast<uint64_t>(options_.held_out * 0x1p64);
    const double expected = options_.held_out * static_cast<double>(hashes.size());
    const auto last = hashes.size() - 1;
    const auto fewest = std::clamp(static_cast<size_t>(expected * 0.9), size_t{1}, last);
    const auto most = std::clamp(static_cast<size_t>(expected * 1.1) + 1, size_t{1}, last);
    return std::clamp(threshold, hashes[fewest - 1] + 1, hashes[most]);
  }

  void split() {
    const uint64_t threshold = held_out_threshold();
    std::vector<uint64_t> train(1 + inputs_.part_of_source.back(), 0);
    for (BuildDocument& document : documents_) {
      if (document.split_hash >= threshold) {
        ++train[inputs_.part_of_file(document.file)];
        continue;
      }
      document.split = Split::held_out;
      ++manifest_.files[document.file].held_out_documents;
    }
    for (size_t part = 0; part < train.size(); ++part)
      TRIREME_CHECK(train[part] > 0, "data.source: \"", options_.sources[part].path,
                    "\" leaves nothing to train on: every document with text in it is held out",
                    "\nnext: lower data.held_out, or cut the text into more documents");
  }

  // On the train split; of more than kTrainBytesMax on the documents that come first by their hash.
  void train_tokenizer() {
    std::vector<uint64_t> chosen;
    for (uint64_t d = 0; d < documents_.size(); ++d)
      if (documents_[d].split == Split::train) chosen.push_back(d);
    std::ranges::sort(chosen, {}, [&](uint64_t d) { return documents_[d].order; });
    uint64_t bytes = 0;
    size_t count = 0;
    while (count < chosen.size() && bytes < kTrainBytesMax)
      bytes += documents_[chosen[count++]].bytes;
    chosen.resize(count);
    std::ranges::sort(chosen);

    std::vector<std::string> texts(chosen.size());
    std::vector<uint64_t> files;
    for (const uint64_t d : chosen)
      if (files.empty() || files.back() != documents_[d].file) files.push_back(documents_[d].file);
    read("collecting text for the tokenizer, bytes", files,
         [&](const Chunk& chunk, const InputFile& input) {
           for_each_known(chunk, input, [&](std::string_view text, uint64_t d) {
             const auto at = std::ranges::lower_bound(chosen, d);
             if (at != chosen.end() && *at == d)
               texts[static_cast<size_t>(at - chosen.begin())] = text;
           });
         });
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    BpeTraining training;
    training.vocab = static_cast<int32_t>(options_.train_vocab);
    training.threads = options_.threads;
    if (progress_)
      training.progress = [&](uint64_t done, uint64_t total) {
        progress_("training the tokenizer, merges", done, total);
      };
    tokenizer_ = train_bpe(views, training);
    manifest_.tokenizer = "byte-level BPE, trained on the train split";
  }

  // Calls visit(text, index into documents_) for the documents of a chunk that scan() has taken.
  void for_each_known(const Chunk& chunk, const InputFile& input,
                      const std::function<void(std::string_view, uint64_t)>& visit) const {
    std::optional<uint64_t> next;
    for_each_document(chunk, input, [&](const Document& document) {
      if (document.fault != Fault::none) return;
      if (!next) {
        const auto found = std::ranges::lower_bound(
            documents_, std::pair(chunk.file, document.line), {},
            [](const BuildDocument& d) { return std::pair(d.file, d.line); });
        next = static_cast<uint64_t>(found - documents_.begin());
      }
      const uint64_t d = (*next)++;
      // A file that changes between two passes is found out at its end only; this is its middle.
      if (d >= documents_.size() || documents_[d].file != chunk.file ||
          documents_[d].line != document.line || documents_[d].bytes != document.text.size())
        throw RunError(concat("data: ", input.file->name,
                              " was changed while the corpus was built\nnext: run it again"));
      visit(document.text, d);
    });
  }

  void describe_tokenizer() {
    const auto end_of_text = options_.end_of_text.empty()
                                 ? tokenizer_->end_of_text()
                                 : std::optional(id_of("data.eos", options_.end_of_text));
    TRIREME_CHECK(end_of_text, "data.tokenizer: ", options_.tokenizer.string(),
                  " has no token that ends a text, such as <|endoftext|> or </s>",
                  "\nnext: name one of its tokens by data.eos");
    manifest_.end_of_text = *end_of_text;
    if (!options_.begin_of_text.empty())
      manifest_.begin_of_text = id_of("data.bos", options_.begin_of_text);
    manifest_.vocab = tokenizer_->vocab_size();
    manifest_.token_bytes = manifest_.vocab <= 65536 ? 2 : 4;
    if (!options_.tokenizer.empty()) manifest_.tokenizer = options_.tokenizer.string();
    char hex[17];
    std::snprintf(hex, sizeof hex, "%016llx",
                  static_cast<unsigned long long>(tokenizer_->fingerprint()));
    manifest_.fingerprint = hex;
  }

  int32_t id_of(const char* key, const std::string& token) const {
    const auto id = tokenizer_->id_of(token);
    TRIREME_CHECK(id, key, ": the tokenizer has no token ", token);
    return *id;
  }

  template <class Id>
  void encode_as() {
    AtomicFile spill(partial_.path / "spill.bin");
    std::atomic<uint64_t> spilled = 0;  // ids
    read("encoding, bytes", all_files(), [&](const Chunk& chunk, const InputFile& input) {
      std::vector<int32_t> ids;
      std::vector<uint64_t> encoded;  // documents, whose ids lie one behind the other
      for_each_known(chunk, input, [&](std::string_view text, uint64_t d) {
        const size_t before = ids.size();
        if (manifest_.begin_of_text) ids.push_back(static_cast<int32_t>(*manifest_.begin_of_text));
        const auto text_begin = static_cast<std::ptrdiff_t>(ids.size());
        tokenizer_->encode_plain(text, ids);
        const auto end_of_text = static_cast<int32_t>(manifest_.end_of_text);
        TRIREME_CHECK(std::find(ids.begin() + text_begin, ids.end(), end_of_text) == ids.end(),
                      "data: ", input.file->name,
                      ": the tokenizer puts its end-of-text token into the ",
                      "text itself, which would cut the document");
        ids.push_back(end_of_text);
        documents_[d].tokens = ids.size() - before;
        documents_[d].spill = before;
        encoded.push_back(d);
      });
      const std::vector<Id> narrow(ids.begin(), ids.end());
      const uint64_t at = spilled.fetch_add(narrow.size());
      for (const uint64_t d : encoded) documents_[d].spill += at;
      spill.write_at(at * sizeof(Id), narrow.data(), narrow.size() * sizeof(Id));
    });
    spill.commit();
  }
  void encode() { manifest_.token_bytes == 2 ? encode_as<uint16_t>() : encode_as<int32_t>(); }

  void sort_documents() {
    const auto place = [&](const BuildDocument& d) {
      return std::tuple(inputs_.part_of_file(d.file), d.split, d.order, d.file, d.line);
    };
    std::ranges::sort(documents_, {}, place);
    manifest_.streams.resize(2 * (1 + inputs_.part_of_source.back()));
  }

  void write_documents() {
    const auto each = static_cast<uint64_t>(manifest_.token_bytes);
    StoredFile tokens(partial_.path, "tokens.bin"), records(partial_.path, "documents.bin");
    {
      const MappedFile spill(partial_.path / "spill.bin");
      for (const BuildDocument& d : documents_) {
        CorpusStream& stream =
            manifest_.streams[2 * inputs_.part_of_file(d.file) + static_cast<uint64_t>(d.split)];
        const DocumentRecord record{.first_token = stream.tokens,
                                    .tokens = d.tokens,
                                    .bytes = d.bytes,
                                    .hash = d.hash,
                                    .line = d.line,
                                    .file = d.file};
        records.write(&record, sizeof record);
        tokens.write(spill.bytes().data() + d.spill * each, d.tokens * each);
        stream.tokens += d.tokens;
        stream.text_bytes += d.bytes;
        ++stream.documents;
        manifest_.files[d.file].tokens += d.tokens;
      }
    }
    fs::remove(partial_.path / "spill.bin");
    for (size_t s = 1; s < manifest_.streams.size(); ++s) {
      const CorpusStream& before = manifest_.streams[s - 1];
      manifest_.streams[s].first_token = before.first_token + before.tokens;
      manifest_.streams[s].first_document = before.first_document + before.documents;
    }
    StoredFile token_bytes(partial_.path, "token_bytes.bin");
    for (int32_t id = 0; id < manifest_.vocab; ++id) {
      const auto bytes = static_cast<uint32_t>(tokenizer_->bytes_of(id).size());
      token_bytes.write(&bytes, sizeof bytes);
    }
    StoredFile json(partial_.path, "tokenizer.json");
    json.write(tokenizer_->to_json().data(), tokenizer_->to_json().size());
    for (StoredFile* file : {&tokens, &records, &token_bytes, &json})
      manifest_.stored.push_back(file->commit());
  }

  void report() const {
    CorpusStream train, held_out;
    for (size_t s = 0; s < manifest_.streams.size(); ++s) {
      CorpusStream& sum = s % 2 == 0 ? train : held_out;
      sum.documents += manifest_.streams[s].documents;
      sum.tokens += manifest_.streams[s].tokens;
      sum.text_bytes += manifest_.streams[s].text_bytes;
    }
    log_info(concat("corpus ", (options_.cache / manifest_.id).string(), ": ",
                    format_count(train.documents + held_out.documents), " documents, ",
                    format_bytes(train.text_bytes + held_out.text_bytes), ", ",
                    format_count(train.tokens + held_out.tokens),
                    " tokens; held out: ", format_count(held_out.documents), " documents, ",
                    format_bytes(held_out.text_bytes)));
    for (const CorpusSource& source : manifest_.sources) {
      if (source.binary + source.encoding == 0) continue;
      std::string first;
      for (const CorpusFile& file : manifest_.files)
        if (first.empty() && &manifest_.sources[file.source] == &source && file.left_out_documents)
          first = file.name;
      log_warning(concat("data.source: \"", source.path, "\": left out ", source.binary,
                         " binary documents and ", source.encoding,
                         " that are not UTF-8; the first in ", first));
    }
  }

  const CorpusOptions& options_;
  const CorpusInputs& inputs_;
  std::optional<Tokenizer> tokenizer_;
  const BuildProgress& progress_;
  PartialDirectory partial_;
  CorpusManifest manifest_;
  std::vector<BuildDocument> documents_;
};

}  // namespace

void write_corpus(const CorpusOptions& options, const CorpusInputs& inputs, const std::string& id,
                  std::optional<Tokenizer> tokenizer, const BuildProgress& progress) {
  Builder(options, inputs, id, std::move(tokenizer), progress).run();
}

}  // namespace trireme
