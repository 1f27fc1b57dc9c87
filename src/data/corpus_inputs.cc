#include "data/corpus_inputs.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "base/error.h"
#include "data/input_stream.h"

namespace trireme {
namespace {

// Part of every name: a change of the format, of the order of documents, or of what the same
// options train, gives corpora other names.
constexpr const char* kFormat = "trireme-corpus 2";

// Text whose parts cannot run into one another.
class Key {
 public:
  Key& add(std::string_view part) {
    text_ += concat(part.size(), ":");
    text_ += part;
    return *this;
  }
  Key& add(uint64_t part) { return add(std::to_string(part)); }

  XXH128_hash_t hash() const { return XXH3_128bits(text_.data(), text_.size()); }

 private:
  std::string text_;
};

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

void add_options(Key& key, const CorpusOptions& options, const CorpusInputs& inputs) {
  char share[32];
  std::snprintf(share, sizeof share, "%.17g", options.held_out);
  key.add(kFormat).add(share).add(static_cast<uint64_t>(options.train_vocab));
  key.add(options.begin_of_text).add(options.end_of_text);
  for (size_t s = 0; s < options.sources.size(); ++s)
    key.add(options.sources[s].path)
        .add(options.sources[s].field)
        .add(inputs.part_of_source[s])
        .add(inputs.listings[s].files.size());
}

}  // namespace

CorpusInputs list_inputs(const CorpusOptions& options) {
  CorpusInputs inputs;
  inputs.listings = list_sources(options.sources);
  if (!options.tokenizer.empty())
    inputs.tokenizer = stat_file(options.tokenizer, options.tokenizer.string(), "data.tokenizer");
  const auto weighted = std::ranges::count_if(
      options.sources, [](const SourceOptions& source) { return source.weight.has_value(); });
  const auto entries = static_cast<std::ptrdiff_t>(options.sources.size());
  TRIREME_CHECK(weighted == 0 || weighted == entries, "data.source: ", weighted, " of ", entries,
                " entries have a weight; give one to each (a blend) or to none");
  for (size_t s = 0; s < options.sources.size(); ++s) {
    inputs.part_of_source.push_back(weighted ? s : 0);
    for (const SourceFile& file : inputs.listings[s].files) {
      inputs.files.push_back({&file, options.sources[s].field});
      inputs.source_of_file.push_back(s);
      inputs.bytes += file.bytes;
    }
  }
  return inputs;
}

void hash_inputs(const CorpusOptions& options, CorpusInputs& inputs,
                 const BuildProgress& progress) {
  inputs.hashes.resize(inputs.files.size());
  std::mutex mutex;  // guards done and the order of calls
  uint64_t done = 0;
  parallel_for(inputs.files.size(), options.threads, [&](uint64_t i) {
    FileHash hash = hash_file(inputs.files[i].file->path);
    inputs.hashes[i] = std::move(hash.xxh128);
    if (!progress) return;
    const std::lock_guard lock(mutex);
    progress("hashing files, bytes", done += hash.bytes, inputs.bytes);
  });
}

std::string corpus_id(const CorpusOptions& options, const CorpusInputs& inputs,
                      uint64_t fingerprint) {
  TRIREME_ASSERT(inputs.hashes.size() == inputs.files.size());
  Key key;
  add_options(key, options, inputs);
  key.add(fingerprint);
  for (size_t i = 0; i < inputs.files.size(); ++i)
    key.add(inputs.files[i].file->name).add(inputs.hashes[i]);
  return hex(key.hash().low64);
}

std::string stat_id(const CorpusOptions& options, const CorpusInputs& inputs) {
  Key key;
  add_options(key, options, inputs);
  const auto add_file = [&key](const SourceFile& file) {
    key.add(file.name).add(file.bytes).add(file.device).add(file.inode);
    key.add(static_cast<uint64_t>(file.modified_ns)).add(static_cast<uint64_t>(file.changed_ns));
  };
  for (const InputFile& input : inputs.files) add_file(*input.file);
  if (inputs.tokenizer) add_file(*inputs.tokenizer);
  return hex(key.hash().high64) + hex(key.hash().low64);
}

bool trusts_times(const CorpusInputs& inputs, int64_t now_ns) {
  const auto old = [&](const SourceFile& file) {
    return std::max(file.modified_ns, file.changed_ns) + 2'000'000'000 < now_ns;
  };
  return std::ranges::all_of(inputs.files, [&](const InputFile& i) { return old(*i.file); }) &&
         (!inputs.tokenizer || old(*inputs.tokenizer));
}

}  // namespace trireme
