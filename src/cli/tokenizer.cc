#include <CLI/CLI.hpp>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "data/chat_template.h"
#include "data/document_reader.h"
#include "data/source.h"
#include "data/tokenizer/json_fields.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/train.h"
#include "state/hugging_face.h"
#include "train/run_directory.h"

namespace trireme {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct TrainOptions {
  std::vector<std::string> files;
  std::string out, field = "text";
  BpeTraining bpe;
};

struct CodeOptions {
  std::string tokenizer, file;
  bool plain = false, add_special = false, skip_special = false, stats = false;
  int threads = 1;
};

struct RenderOptions {
  std::string model, file;
  ChatTemplate::Options chat;
};

int machine_threads() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

// All documents in memory, in the order of the files.
std::vector<std::string> read_documents(const TrainOptions& options) {
  std::vector<SourceOptions> entries;
  for (const auto& file : options.files)
    entries.push_back({.path = file, .field = options.field, .weight = {}});
  const auto listings = list_sources(entries);
  std::vector<InputFile> inputs;
  for (const auto& listing : listings)
    for (const auto& file : listing.files) inputs.push_back({&file, options.field});
  std::vector<std::vector<std::string>> by_chunk;
  std::mutex mutex;
  for_each_chunk(inputs, {.threads = options.bpe.threads, .hashes = {}, .progress = {}},
                 [&](Chunk& chunk) {
                   std::vector<std::string> texts;
                   for_each_document(chunk, inputs[chunk.file], [&](const Document& document) {
                     if (document.fault == Fault::none) texts.emplace_back(document.text);
                   });
                   const std::lock_guard lock(mutex);
                   if (by_chunk.size() <= chunk.number) by_chunk.resize(chunk.number + 1);
                   by_chunk[chunk.number] = std::move(texts);
                 });
  std::vector<std::string> all;
  for (auto& texts : by_chunk) std::move(texts.begin(), texts.end(), std::back_inserter(all));
  return all;
}

int train(TrainOptions& options) {
  const auto start = Clock::now();
  const std::vector<std::string> texts = read_documents(options);
  const std::vector<std::string_view> documents(texts.begin(), texts.end());
  uint64_t bytes = 0;
  for (const auto text : documents) bytes += text.size();
  Progress progress("training a tokenizer");
  options.bpe.progress = [&](uint64_t done, uint64_t total) {
    progress.show(done, total, "tokens");
  };
  const Tokenizer tokenizer = train_bpe(documents, options.bpe);
  write_file(options.out, tokenizer.to_json());
  log_info(concat(options.out, ": ", format_count(tokenizer.vocab_size()), " tokens from ",
                  format_count(documents.size()), " documents, ", format_bytes(bytes), ", in ",
                  format_duration(Clock::now() - start)));
  if (tokenizer.vocab_size() < options.bpe.vocab)
    log_warning("the text has no more pairs to merge, so the vocabulary is smaller than asked for");
  return 0;
}

// What stdin holds, to its end.
std::string read_stdin() {
  std::string text;
  char buffer[1 << 16];
  while (const size_t got = std::fread(buffer, 1, sizeof buffer, stdin)) text.append(buffer, got);
  TRIREME_CHECK(!std::ferror(stdin), "cannot read stdin");
  return text;
}

// Lines of up to 64 MB together, the smallest part of a file that is worked on in parallel.
std::vector<std::string_view> next_lines(std::string_view text, size_t& at) {
  constexpr size_t kBlockBytes = size_t{64} << 20;
  std::vector<std::string_view> lines;
  for (const size_t begin = at; at < text.size() && at - begin < kBlockBytes;) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

void put_ids(std::span<const int32_t> ids, std::string& out) {
  out += "{\"ids\": [";
  char number[16];
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += ", ";
    out.append(number, std::to_chars(number, number + sizeof number, ids[i]).ptr);
  }
  out += "]}\n";
}

// Seconds in each stage, and how much went through.
struct Stats {
  double read = 0, work = 0, write = 0;
  uint64_t bytes = 0, ids = 0, surrogates = 0;

  void say(const CodeOptions& options, const char* what) const {
    if (surrogates > 0)
      log_warning(concat(options.file, ": ", format_count(surrogates),
                         " lone surrogates in JSON were taken as U+FFFD"));
    if (options.stats)
      std::fprintf(stderr,
                   "{\"bytes\": %llu, \"ids\": %llu, \"read_seconds\": %.4f, \"%s_seconds\": %.4f, "
                   "\"write_seconds\": %.4f}\n",
                   static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(ids),
                   read, what, work, write);
  }
};

class Watch {
 public:
  explicit Watch(double& seconds) : seconds_(seconds) {}
  ~Watch() { seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  double& seconds_;
  Clock::time_point start_ = Clock::now();
};

// The value of `key` in the object of one line.
json read_line(std::string_view line, const char* key, const std::string& where,
               uint64_t& surrogates) {
  const json object = parse_json<json>(replace_lone_surrogates(line, surrogates), where);
  JsonFields fields(object, where);
  return fields.at(key);
}

std::vector<int32_t> encode_text(const CodeOptions& options, const Tokenizer& tokenizer,
                                 std::string_view text) {
  std::vector<int32_t> ids;
  if (options.add_special) ids.assign(tokenizer.prefix().begin(), tokenizer.prefix().end());
  if (options.plain) tokenizer.encode_plain(text, ids);
  else tokenizer.encode(text, ids);
  if (options.add_special)
    ids.insert(ids.end(), tokenizer.suffix().begin(), tokenizer.suffix().end());
  return ids;
}

// `read`, `work` and `write` are called for the lines of a block, each in parallel.
template <class Read, class Work, class Write>
void for_each_line(const CodeOptions& options, Stats& stats, Read read, Work work, Write write) {
  const MappedFile file(options.file);
  uint64_t number = 0;
  for (size_t at = 0; at < file.text().size();) {
    std::vector<std::string_view> lines = next_lines(file.text(), at);
    const auto first = number + 1;
    number += lines.size();
    using In = decltype(read(std::string_view(), std::string()));
    std::vector<In> in(lines.size());
    std::vector<decltype(work(in[0]))> done(lines.size());
    std::vector<std::string> out(lines.size());
    const auto each = [&](double& seconds, auto todo) {
      const Watch watch(seconds);
      parallel_for(lines.size(), options.threads, todo);
    };
    each(stats.read,
         [&](uint64_t i) { in[i] = read(lines[i], concat(options.file, ":", first + i)); });
    each(stats.work, [&](uint64_t i) { done[i] = work(in[i]); });
    each(stats.write, [&](uint64_t i) { write(done[i], out[i]); });
    const Watch watch(stats.write);
    for (const auto& text : out) std::fwrite(text.data(), 1, text.size(), stdout);
  }
}

int encode(const CodeOptions& options) {
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  Stats stats;
  if (options.file.empty()) {
    std::string out;
    put_ids(encode_text(options, tokenizer, read_stdin()), out);
    std::fwrite(out.data(), 1, out.size(), stdout);
    return 0;
  }
  std::atomic<uint64_t> bytes = 0, ids = 0, surrogates = 0;
  for_each_line(
      options, stats,
      [&](std::string_view line, const std::string& where) {
        uint64_t replaced = 0;
        const json text = read_line(line, "text", where, replaced);
        TRIREME_CHECK(text.is_string(), where, ": 'text' must be a string, found ",
                      text.type_name());
        surrogates += replaced, bytes += text.get_ref<const std::string&>().size();
        return text.get<std::string>();
      },
      [&](const std::string& text) { return encode_text(options, tokenizer, text); },
      [&](const std::vector<int32_t>& found, std::string& out) {
        ids += found.size();
        put_ids(found, out);
      });
  stats.bytes = bytes, stats.ids = ids, stats.surrogates = surrogates;
  stats.say(options, "encode");
  return 0;
}

std::vector<int32_t> read_ids(const json& list, const Tokenizer& tokenizer,
                              const std::string& where) {
  TRIREME_CHECK(list.is_array(), where, ": 'ids' must be a list, found ", list.type_name());
  std::vector<int32_t> ids;
  for (const json& id : list) {
    TRIREME_CHECK(id.is_number_unsigned() &&
                      id.get<uint64_t>() < static_cast<uint64_t>(tokenizer.vocab_size()),
                  where, ": ", id.dump().substr(0, 40), " is no id; there are ",
                  tokenizer.vocab_size());
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

int decode(const CodeOptions& options) {
  const Tokenizer tokenizer = Tokenizer::load(options.tokenizer);
  Stats stats;
  uint64_t none = 0;
  if (options.file.empty()) {
    const std::string lines = read_stdin();
    size_t at = 0, number = 0;
    for (const auto line : next_lines(lines, at)) {
      const std::string where = concat("stdin:", ++number);
      const auto ids = read_ids(read_line(line, "ids", where, none), tokenizer, where);
      const std::string text = tokenizer.decode(ids, options.skip_special);
      std::fwrite(text.data(), 1, text.size(), stdout);
    }
    return 0;
  }
  std::atomic<uint64_t> bytes = 0, ids = 0;
  for_each_line(
      options, stats,
      [&](std::string_view line, const std::string& where) {
        uint64_t replaced = 0;
        auto found = read_ids(read_line(line, "ids", where, replaced), tokenizer, where);
        ids += found.size();
        return found;
      },
      [&](const std::vector<int32_t>& found) {
        return tokenizer.decode(found, options.skip_special);
      },
      [&](const std::string& text, std::string& out) {
        bytes += text.size();
        // JSON cannot hold bytes that are no UTF-8: they become U+FFFD.
        out = json{{"text", text}}.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
      });
  stats.bytes = bytes, stats.ids = ids;
  stats.say(options, "decode");
  return 0;
}

// A directory of configuration files alone will do: no weights are needed.
ChatTemplate load_chat_template(const std::string& model) {
  fs::path directory = model;
  if (!fs::exists(directory / "tokenizer_config.json") &&
      !fs::exists(directory / "chat_template.jinja")) {
    PosixStorage storage;
    directory = open_tensors(storage, fs::exists(directory) ? directory : find_run(model)).path();
  }
  auto loaded = ChatTemplate::load(directory);
  TRIREME_CHECK(loaded, directory.string(),
                " has no chat template: no chat_template.jinja, and no \"chat_template\" in "
                "tokenizer_config.json");
  return std::move(*loaded);
}

int render(const RenderOptions& options) {
  const ChatTemplate chat = load_chat_template(options.model);
  const std::string text = options.file.empty() ? read_stdin() : read_file(options.file);
  const std::string name = options.file.empty() ? "stdin" : options.file;
  std::string out;
  for (size_t at = 0, number = 0; at < text.size();)
    for (const auto line : next_lines(text, at)) {
      const std::string where = concat(name, ":", ++number);
      const auto conversation = parse_json<nlohmann::ordered_json>(line, where);
      out += json{{"text", chat.render(conversation, options.chat, where)}}.dump() + "\n";
    }
  std::fwrite(out.data(), 1, out.size(), stdout);
  return 0;
}

// Both directions take the same.
void declare_common(CLI::App& app, CodeOptions& options, const char* file_help) {
  app.add_option("--tokenizer", options.tokenizer, "a tokenizer.json")
      ->required()
      ->type_name("FILE");
  app.add_option("FILE.jsonl", options.file, file_help);
  app.add_option("--threads", options.threads, "worker threads")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_flag("--stats", options.stats, "print sizes and seconds as JSON to stderr");
}

}  // namespace

Run declare_tokenizer(CLI::App& app) {
  app.require_subcommand(1);
  auto chosen = std::make_shared<Run>();

  auto to_train = std::make_shared<TrainOptions>();
  to_train->bpe.threads = machine_threads();
  CLI::App* train_app = app.add_subcommand("train", "learn a byte-level BPE tokenizer from text");
  train_app->add_option("FILES", to_train->files, "files, folders, globs or python-stdlib")
      ->required();
  train_app->add_option("--vocab", to_train->bpe.vocab, "tokens in all")
      ->required()
      ->type_name("N");
  train_app->add_option("--out", to_train->out, "the tokenizer.json to write")
      ->required()
      ->type_name("FILE");
  train_app
      ->add_option("--special", to_train->bpe.special_tokens,
                   "special tokens, in place of <|endoftext|>")
      ->type_name("TOKEN");
  train_app
      ->add_option("--min-frequency", to_train->bpe.min_frequency, "merge no pair that is rarer")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  train_app->add_option("--field", to_train->field, "of the objects in .jsonl files")
      ->capture_default_str();
  train_app->add_option("--threads", to_train->bpe.threads, "worker threads")
      ->check(CLI::Range(1, 4096));
  train_app->callback([=] { *chosen = [=] { return train(*to_train); }; });

  auto to_encode = std::make_shared<CodeOptions>();
  to_encode->threads = machine_threads();
  CLI::App* encode_app = app.add_subcommand("encode", "text to ids");
  declare_common(*encode_app, *to_encode, "{\"text\"} lines; without it, stdin is one text");
  encode_app->add_flag("--plain", to_encode->plain, "take special tokens in the text as text");
  encode_app->add_flag("--add-special", to_encode->add_special,
                       "add what the post-processor adds, such as a BOS");
  encode_app->callback([=] { *chosen = [=] { return encode(*to_encode); }; });

  auto to_decode = std::make_shared<CodeOptions>();
  to_decode->threads = machine_threads();
  CLI::App* decode_app = app.add_subcommand("decode", "ids to text");
  declare_common(*decode_app, *to_decode,
                 "{\"ids\"} lines; without it, they come from stdin and bare text goes out");
  decode_app->add_flag("--skip-special", to_decode->skip_special, "leave special tokens out");
  decode_app->callback([=] { *chosen = [=] { return decode(*to_decode); }; });

  auto to_render = std::make_shared<RenderOptions>();
  CLI::App* render_app = app.add_subcommand("render", "conversations to text, by a chat template");
  render_app
      ->add_option("MODEL", to_render->model,
                   "a directory with tokenizer_config.json or chat_template.jinja, a run, or a "
                   "checkpoint")
      ->required();
  render_app->add_option("FILE.jsonl", to_render->file,
                         "{\"messages\"} lines, perhaps with \"tools\", \"documents\" and "
                         "\"chat_template_kwargs\"; without it, they come from stdin");
  render_app->add_flag("--add-generation-prompt", to_render->chat.add_generation_prompt,
                       "end with the header of an answer");
  render_app->add_option("--template", to_render->chat.name, "which one, if there are several")
      ->type_name("NAME");
  render_app->callback([=] { *chosen = [=] { return render(*to_render); }; });

  return [chosen] { return (*chosen)(); };
}

}  // namespace trireme
