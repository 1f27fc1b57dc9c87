#include "data/document_reader.h"

#include <algorithm>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "base/error.h"
#include "data/input_stream.h"
#include "data/utf8.h"

namespace trireme {
namespace {

using json = nlohmann::json;

constexpr size_t kChunkBytes = 1 << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Picks one text out of a JSON object without building the rest, however deep it is.
class FieldReader : public json::json_sax_t {
 public:
  explicit FieldReader(std::string_view field) : field_(field) {}

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(int64_t) override { return other(); }
  bool number_unsigned(uint64_t) override { return other(); }
  bool number_float(double, const std::string&) override { return other(); }
  bool binary(json::binary_t&) override { return other(); }
  bool string(std::string& value) override {
    if (wanted()) text = std::move(value);
    object = object || depth_ > 0;
    return true;
  }
  bool start_object(size_t) override {
    if (depth_ == 0) object = true;
    else other();
    ++depth_;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    if (!seen_.insert(name).second) {
      problem = concat("the key \"", shown(name), "\" occurs twice");
      return false;
    }
    at_field_ = name == field_;
    if (keys.size() < 200) keys += (keys.empty() ? "" : ", ") + name;
    return true;
  }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override {
    other();
    ++depth_;
    return true;
  }
  bool end_array() override { return --depth_, true; }
  bool parse_error(size_t, const std::string&, const json::exception& error) override {
    problem = error.what();
    return false;
  }

  std::optional<std::string> text;
  std::string keys;     // of the object, for a message
  std::string problem;  // of the JSON
  bool object = false;  // the line is one
  bool other_type = false;

 private:
  bool wanted() const { return depth_ == 1 && at_field_; }
  bool other() {
    other_type = other_type || wanted();
    return true;
  }

  static std::string shown(std::string_view name) {
    std::string text(name.substr(0, 80));
    for (char& c : text)
      if (static_cast<unsigned char>(c) < ' ' || c == 127) c = '?';
    return text;
  }

  std::string_view field_;
  std::set<std::string, std::less<>> seen_;  // keys of the object, not of those inside it
  int64_t depth_ = 0;
  bool at_field_ = false;
};

struct Finding {
  Fault fault = Fault::none;
  size_t offset = 0;
};

Finding examine(std::string_view bytes) {
  if (const auto at = find_binary(bytes)) return {Fault::binary, *at};
  if (const auto at = find_invalid_utf8(bytes)) return {Fault::encoding, *at};
  return {};
}

// What to do about a fault: throw when the user named the file.
void refuse_if_named(const Finding& finding, std::string_view bytes, uint64_t offset,
                     const SourceFile& file) {
  if (!file.named || finding.fault == Fault::none) return;
  char byte[8];
  std::snprintf(byte, sizeof byte, "0x%02X", static_cast<unsigned char>(bytes[finding.offset]));
  throw InputError(
      concat("data: cannot read ", file.name, " as text: ",
             finding.fault == Fault::binary ? "it is a binary file: " : "it is not UTF-8: ", byte,
             " at byte ", offset + finding.offset,
             compression_of(file.name) == Compression::none ? "" : " of its decompressed text",
             "\nnext: leave it out of data.source",
             finding.fault == Fault::encoding ? ", or convert it to UTF-8 (iconv)" : ""));
}

std::string field_of(std::string_view line, const InputFile& input, uint64_t number) {
  FieldReader reader(input.field);
  const bool parsed = json::sax_parse(line.begin(), line.end(), &reader);
  const auto fail = [&](const auto&... what) {
    throw InputError(concat("data: ", input.file->name, ":", number, ": ", what...));
  };
  if (!parsed) fail("expected one JSON object a line: ", reader.problem);
  if (!reader.object) fail("expected one JSON object a line, found another value");
  if (!reader.text && reader.other_type)
    fail("the field \"", input.field,
         "\" is not a text\nnext: set data.field, or `field` of this source");
  if (!reader.text)
    fail("no field \"", input.field, "\"; there are: ", reader.keys,
         "\nnext: set data.field, or `field` of this source");
  return std::move(*reader.text);
}

void for_each_line(const Chunk& chunk, const InputFile& input,
                   const std::function<void(const Document&)>& visit) {
  std::string_view rest = chunk.bytes;
  for (uint64_t line = chunk.line; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view text = rest.substr(0, end);
    const uint64_t offset = chunk.offset + (chunk.bytes.size() - rest.size());
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    Finding finding = examine(text);
    refuse_if_named(finding, text, offset, *input.file);
    if (finding.fault != Fault::none) {
      visit({{}, line, finding.fault});
      continue;
    }
    const std::string value = field_of(text, input, line);
    visit({value, line, value.empty() ? Fault::empty : Fault::none});
  }
}

// Hands out chunks. One thread at a time.
class ChunkReader {
 public:
  ChunkReader(std::span<const InputFile> files, const ReadOptions& options)
      : files_(files), options_(options) {}

  bool next(Chunk& chunk) {
    chunk.bytes.clear();
    while (file_ < files_.size()) {
      if (!stream_) open();
      chunk.number = number_;
      chunk.file = file_;
      chunk.offset = offset_;
      chunk.line = line_;
      is_jsonl_name(files_[file_].file->path.native()) ? fill_lines(chunk) : fill_whole(chunk);
      const bool first = offset_ == 0;
      if (first && chunk.bytes.starts_with(kByteOrderMark)) {
        chunk.bytes.erase(0, kByteOrderMark.size());
        chunk.offset = offset_ = kByteOrderMark.size();
      }
      offset_ += chunk.bytes.size();
      if (ended_) close();
      // An empty file is a chunk too: an empty document.
      if (first || !chunk.bytes.empty()) {
        ++number_;
        return true;
      }
    }
    return false;
  }
  uint64_t number() const { return number_; }

 private:
  void open() {
    stream_.emplace(files_[file_].file->path);
    rest_.clear();
    offset_ = 0;
    line_ = 1;
    ended_ = false;
  }

  void close() {
    if (!options_.hashes.empty() && stream_->raw_hash() != options_.hashes[file_])
      throw RunError(concat("data: ", files_[file_].file->name,
                            " was changed while the corpus was built\nnext: run it again"));
    bytes_before_ += stream_->raw_bytes();
    stream_.reset();
    ++file_;
    report(0);
  }

  void report(uint64_t of_this_file) {
    if (options_.progress) options_.progress(bytes_before_ + of_this_file);
  }

  // Appends what one read gives; false at the end.
  bool append(std::string& to) {
    const size_t before = to.size();
    to.resize(before + kChunkBytes);
    const size_t n = stream_->read(to.data() + before, kChunkBytes);
    to.resize(before + n);
    if (n > 0) report(stream_->raw_bytes());
    ended_ = n == 0;
    return n > 0;
  }

  void check_length(uint64_t bytes, uint64_t line) {
    if (bytes <= options_.document_max_bytes) return;
    throw InputError(concat(
        "data: ", files_[file_].file->name, line > 0 ? concat(":", line) : std::string(),
        ": a document of more than ", format_limit(), " bytes; one document has to fit in memory",
        "\nnext: cut it into several files, or into the lines of a .jsonl file"));
  }
  std::string format_limit() const { return std::to_string(options_.document_max_bytes); }

  void fill_whole(Chunk& chunk) {
    while (append(chunk.bytes)) check_length(chunk.bytes.size(), 0);
  }

  // Whole lines: up to the last line feed of what was read, the rest stays for the next chunk.
  void fill_lines(Chunk& chunk) {
    chunk.bytes.swap(rest_);
    rest_.clear();
    size_t searched = 0;  // bytes before this hold no line feed
    while (append(chunk.bytes)) {
      const size_t last = chunk.bytes.rfind('\n');
      if (last != std::string::npos && last >= searched) {
        rest_.assign(chunk.bytes, last + 1);
        chunk.bytes.resize(last + 1);
        break;
      }
      searched = chunk.bytes.size();
      check_length(searched, line_);
    }
    line_ += static_cast<uint64_t>(std::count(chunk.bytes.begin(), chunk.bytes.end(), '\n'));
  }

  std::span<const InputFile> files_;
  const ReadOptions& options_;
  std::optional<InputStream> stream_;
  std::string rest_;
  size_t file_ = 0;
  uint64_t number_ = 0, offset_ = 0, line_ = 1, bytes_before_ = 0;
  bool ended_ = false;
};

// The exception of the smallest number that any thread has met.
class FirstFailure {
 public:
  void take(uint64_t number) {  // in a catch block
    const std::lock_guard lock(mutex_);
    if (!exception_ || number < number_) exception_ = std::current_exception(), number_ = number;
  }
  bool any() const {
    const std::lock_guard lock(mutex_);
    return exception_ != nullptr;
  }
  void rethrow() const {
    if (exception_) std::rethrow_exception(exception_);
  }

 private:
  mutable std::mutex mutex_;  // guards the two below
  std::exception_ptr exception_;
  uint64_t number_ = 0;
};

// Runs `work` on this thread and threads - 1 others until all have returned.
void run_threads(int threads, const std::function<void()>& work) {
  std::vector<std::jthread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work);
  work();
}

}  // namespace

void for_each_document(const Chunk& chunk, const InputFile& input,
                       const std::function<void(const Document&)>& visit) {
  if (is_jsonl_name(input.file->path.native())) return for_each_line(chunk, input, visit);
  if (chunk.bytes.empty()) return visit({{}, 0, Fault::empty});
  const Finding finding = examine(chunk.bytes);
  refuse_if_named(finding, chunk.bytes, chunk.offset, *input.file);
  const bool good = finding.fault == Fault::none;
  visit({good ? std::string_view(chunk.bytes) : std::string_view(), 0, finding.fault});
}

void for_each_chunk(std::span<const InputFile> files, const ReadOptions& options,
                    const std::function<void(Chunk&)>& visit) {
  ChunkReader reader(files, options);
  std::mutex mutex;  // guards the reader
  FirstFailure failure;
  run_threads(options.threads, [&] {
    Chunk chunk{};
    // Chunks are handed out in order, so all before a failed one have been handed out as well.
    while (!failure.any()) {
      try {
        const std::lock_guard lock(mutex);
        chunk.number = reader.number();
        if (!reader.next(chunk)) return;
      } catch (...) {
        return failure.take(chunk.number);
      }
      try {
        visit(chunk);
      } catch (...) {
        return failure.take(chunk.number);
      }
    }
  });
  failure.rethrow();
}

void parallel_for(uint64_t count, int threads, const std::function<void(uint64_t)>& work) {
  std::mutex mutex;  // guards next
  uint64_t next = 0;
  FirstFailure failure;
  run_threads(threads, [&] {
    while (!failure.any()) {
      uint64_t i;
      {
        const std::lock_guard lock(mutex);
        if (next == count) return;
        i = next++;
      }
      try {
        work(i);
      } catch (...) {
        return failure.take(i);
      }
    }
  });
  failure.rethrow();
}

}  // namespace trireme
