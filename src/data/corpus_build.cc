#include "data/corpus_build.h"

#include <unistd.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "data/corpus_builder.h"
#include "data/corpus_inputs.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {
namespace {

constexpr uint64_t kVerifyBytesMax = 256'000'000;  // read in about 30 ms

void check_options(const CorpusOptions& options) {
  TRIREME_CHECK(options.held_out >= 0 && options.held_out < 1,
                "data.held_out: expected a share, at least 0 and below 1, got ", options.held_out);
  TRIREME_ASSERT((options.train_vocab > 0) != !options.tokenizer.empty(),
                 "train_vocab or tokenizer, not both");
  TRIREME_ASSERT(options.threads > 0 && !options.cache.empty());
}

// What an earlier build has noted for these sizes and times, when the corpus is still there.
std::optional<fs::path> find_seen(const CorpusOptions& options, const fs::path& seen) {
  std::error_code error;
  if (!fs::is_regular_file(seen, error)) return std::nullopt;
  const std::string id = read_file(seen);
  if (id.size() != 16 || id.find_first_not_of("0123456789abcdef") != std::string::npos)
    return std::nullopt;
  const fs::path directory = options.cache / id;
  if (!fs::is_regular_file(directory / "manifest.json", error)) return std::nullopt;
  return directory;
}

// Only a hint for the next time, so a cache that cannot be written is no reason to fail.
void note_seen(const fs::path& seen, const std::string& id) {
  try {
    make_directories(seen.parent_path());
    write_file(seen, id);
  } catch (const Error&) {
  }
}

void make_cache(const CorpusOptions& options) {
  make_directories(options.cache);
  TRIREME_CHECK(::access(options.cache.c_str(), W_OK) == 0, "data.cache: cannot write into ",
                options.cache.string(), "\nnext: set data.cache to a directory of your own");
  make_directories(options.cache / "locks");
}

FileLock lock_corpus(const fs::path& path) {
  bool said = false;
  for (;;) {
    if (auto lock = FileLock::try_lock(path)) return std::move(*lock);
    if (!std::exchange(said, true))
      log_info("another process is building this corpus; waiting for it");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // a lock ends with its process
  }
}

// What killed builders have left behind: no lock on it is held any more.
void remove_leftovers(const fs::path& cache, const std::string& own) {
  for (const auto& entry : fs::directory_iterator(cache)) {
    const fs::path& path = entry.path();
    if (path.extension() != ".partial") continue;
    const std::string id = path.stem().string();
    const auto lock = id == own ? std::nullopt : FileLock::try_lock(cache / "locks" / id);
    if (id != own && !lock) continue;
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
}

}  // namespace

BuildProgress log_build_progress() {
  using Clock = std::chrono::steady_clock;
  struct Shown {
    std::string stage;
    Clock::time_point start;
    std::unique_ptr<Progress> line;
  };
  return
      [shown = std::make_shared<Shown>()](std::string_view stage, uint64_t done, uint64_t total) {
        if (shown->stage != stage) {
          shown->line.reset();
          shown->stage = stage;
          shown->start = Clock::now();
        }
        // A stage that is over in a moment says nothing.
        if (Clock::now() - shown->start < std::chrono::milliseconds(500)) return;
        if (!shown->line) shown->line = std::make_unique<Progress>(shown->stage);
        shown->line->show(done, total);
      };
}

BuildResult build_corpus(const CorpusOptions& options, const BuildProgress& progress) {
  check_options(options);
  CorpusInputs inputs = list_inputs(options);
  const fs::path seen = options.cache / "seen" / stat_id(options, inputs);
  if (const auto directory = find_seen(options, seen)) return {*directory};

  using std::chrono::system_clock;
  const bool times_tell = trusts_times(
      inputs, std::chrono::nanoseconds(system_clock::now().time_since_epoch()).count());
  std::optional<Tokenizer> tokenizer;
  if (!options.tokenizer.empty()) tokenizer = Tokenizer::load(options.tokenizer);
  hash_inputs(options, inputs, progress);
  const std::string id = corpus_id(options, inputs, tokenizer ? tokenizer->fingerprint() : 0);
  BuildResult result{options.cache / id};
  const auto exists = [&] { return fs::exists(result.directory); };
  if (!exists()) {
    make_cache(options);
    const FileLock lock = lock_corpus(options.cache / "locks" / id);
    if (!exists()) {
      remove_leftovers(options.cache, id);
      write_corpus(options, inputs, id, std::move(tokenizer), progress);
      result.built = true;
    }
  }
  if (times_tell) note_seen(seen, id);
  return result;
}

Corpus open_or_build(const CorpusOptions& options, const BuildProgress& progress) {
  Corpus corpus = Corpus::open(build_corpus(options, progress).directory);
  uint64_t bytes = 0;
  for (const CorpusManifest::Stored& stored : corpus.manifest().stored) bytes += stored.bytes;
  if (bytes <= kVerifyBytesMax) corpus.verify();
  return corpus;
}

}  // namespace trireme
