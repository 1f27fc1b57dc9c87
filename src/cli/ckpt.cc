#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/verbs.h"
#include "state/hugging_face.h"
#include "state/inspect.h"
#include "state/retention.h"

namespace trireme {
namespace {

using json = nlohmann::ordered_json;

struct Options {
  std::string path, other;
  bool json = false, quick = false, dry_run = false;
  std::string kind, format;
  std::optional<std::string> dtype;
  int64_t keep = 0, every_steps = 0;
  std::optional<int64_t> shard_bytes;
  std::vector<std::string> names;
};

void print(const json& document) { std::printf("%s\n", document.dump(2).c_str()); }

// A name from a file, safe to show: control characters would speak to the terminal.
std::string printable(std::string_view text) {
  std::string shown;
  for (unsigned char c : text) {
    if (c >= ' ' && c != 127) shown += static_cast<char>(c);
    else shown += concat("\\x", "0123456789abcdef"[c >> 4], "0123456789abcdef"[c & 15]);
  }
  return shown;
}

// Columns as wide as they need to be; the first one is text, the others are numbers.
void print_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - row[i].size(), ' ');
      line += (i ? "  " : "") + (i ? pad + row[i] : row[i] + pad);
    }
    std::printf("%s\n", line.c_str());
  }
}

std::string shown(double value) {
  if (std::isnan(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string percent(double share) {
  return share == 0 ? "0" : share < 0.0001 ? "<0.01%" : concat(shown(100 * share), "%");
}

// The directory of checkpoints that `path` means; nullopt if it means one checkpoint or a model.
std::optional<fs::path> checkpoints_of(Storage& storage, const fs::path& given) {
  const fs::path path = given.has_filename() ? given : given.parent_path();
  const auto entries = storage.list(path);
  if (!entries || parse_checkpoint_name(path.filename().string())) return std::nullopt;
  bool inside = false;
  for (const StorageEntry& entry : *entries) {
    if (entry.name == kManifestName) return std::nullopt;
    if (entry.name == "checkpoints" || entry.name == "recipe.toml") return path / "checkpoints";
    inside = inside || parse_checkpoint_name(entry.name);
  }
  if (inside || path.filename() == "checkpoints") return path;
  return std::nullopt;
}

fs::path require_checkpoints(Storage& storage, const fs::path& path, const char* verb) {
  const auto checkpoints = checkpoints_of(storage, path);
  TRIREME_CHECK(checkpoints, "ckpt ", verb, ": ", path.string(),
                storage.list(path) ? " is no run" : " does not exist",
                "\nnext: name a run's directory, or its checkpoints/");
  return *checkpoints;
}

const char* state_of(const CheckpointEntry& entry) {
  using State = CheckpointName::State;
  if (entry.name.state == State::partial) return "partial";
  if (entry.name.state == State::removed) return "removed";
  return entry.problem.empty() ? "committed" : "damaged";
}

int list(const Options& options) {
  PosixStorage storage;
  const auto entries = list_checkpoints(storage, require_checkpoints(storage, options.path, "ls"));
  if (options.json) {
    json document = {{"checkpoints", json::array()}};
    for (const CheckpointEntry& entry : entries)
      document["checkpoints"].push_back({{"name", entry.path.filename().string()},
                                         {"path", entry.path.string()},
                                         {"step", entry.name.step},
                                         {"samples", entry.samples},
                                         {"tokens", entry.tokens},
                                         {"bytes", entry.bytes},
                                         {"state", state_of(entry)},
                                         {"problem", entry.problem}});
    print(document);
    return 0;
  }
  if (entries.empty()) log_info("no checkpoints yet");
  std::vector<std::vector<std::string>> rows = {
      {"name", "step", "samples", "tokens", "size", "state"}};
  for (const CheckpointEntry& entry : entries) {
    const auto count = [](int64_t n) { return format_count(static_cast<uint64_t>(n)); };
    rows.push_back({entry.path.filename().string(), count(entry.name.step), count(entry.samples),
                    count(entry.tokens), format_bytes(static_cast<uint64_t>(entry.bytes)),
                    state_of(entry)});
    if (!entry.problem.empty()) log_warning(entry.problem);
  }
  if (rows.size() > 1) print_table(rows);
  return 0;
}

json number_or_null(double value) { return std::isfinite(value) ? json(value) : json(); }

json description(const Checkpoint& checkpoint) {
  json document = {{"path", checkpoint.path().string()}};
  if (!checkpoint.checksummed()) return document;
  const CheckpointInfo& info = checkpoint.info();
  document.update({{"step", info.step},
                   {"samples", info.samples},
                   {"tokens", info.tokens},
                   {"seed", info.seed},
                   {"layout", info.layout},
                   {"parent", info.parent},
                   {"software", info.software},
                   {"metrics", info.metrics},
                   {"extra", info.extra},
                   {"recipe", info.recipe}});
  return document;
}

void print_description(const Checkpoint& checkpoint) {
  std::printf("%s\n", checkpoint.path().c_str());
  int64_t nbytes = 0;
  for (const FileRecord& file : checkpoint.files()) nbytes += file.bytes;
  if (checkpoint.checksummed()) {
    const CheckpointInfo& info = checkpoint.info();
    std::printf("step %s, %s samples, %s tokens, seed %llu\n",
                format_count(static_cast<uint64_t>(info.step)).c_str(),
                format_count(static_cast<uint64_t>(info.samples)).c_str(),
                format_count(static_cast<uint64_t>(info.tokens)).c_str(),
                static_cast<unsigned long long>(info.seed));
    if (!info.layout.empty()) std::printf("layout %s\n", printable(info.layout).c_str());
    if (!info.parent.empty()) std::printf("resumed from %s\n", printable(info.parent).c_str());
    for (const auto& [name, value] : info.metrics)
      std::printf("%s %s\n", printable(name).c_str(), shown(value).c_str());
    for (const auto& [name, version] : info.software)
      std::printf("written by %s %s\n", printable(name).c_str(), printable(version).c_str());
  }
  std::printf("%zu tensors in %zu files, %s\n\n", checkpoint.tensors().size(),
              checkpoint.files().size(), format_bytes(static_cast<uint64_t>(nbytes)).c_str());
}

int show(const Options& options) {
  PosixStorage storage;
  const Checkpoint checkpoint = open_tensors(storage, options.path);
  json document = description(checkpoint);
  document["tensors"] = json::array();
  std::vector<std::vector<std::string>> rows = {
      {"tensor", "kind", "dtype", "shape", "mean", "std", "min", "max", "not finite"}};
  if (options.quick) rows[0].resize(4);
  for (const TensorRecord& tensor : checkpoint.tensors()) {
    if (!options.kind.empty() && tensor.kind != options.kind) continue;
    json facts = {{"name", tensor.name},
                  {"kind", tensor.kind},
                  {"shape", tensor.shape},
                  {"dtype", name_of(tensor.dtype)}};
    std::vector<std::string> row = {printable(tensor.name), tensor.kind,
                                    std::string(name_of(tensor.dtype)), to_string(tensor.shape)};
    if (!options.quick) {
      const TensorStatistics s = statistics_of(checkpoint, tensor);
      facts.update({{"mean", number_or_null(s.mean)},
                    {"std", number_or_null(s.std)},
                    {"min", number_or_null(s.min)},
                    {"max", number_or_null(s.max)},
                    {"non_finite", s.non_finite}});
      for (double value : {s.mean, s.std, s.min, s.max}) row.push_back(shown(value));
      row.push_back(percent(s.non_finite));
    }
    document["tensors"].push_back(std::move(facts));
    rows.push_back(std::move(row));
  }
  if (options.json) {
    print(document);
  } else {
    print_description(checkpoint);
    print_table(rows);
  }
  return 0;
}

constexpr int64_t kLongRead = 1'000'000'000;  // about a second: worth a progress line

struct Verdict {
  std::string path;
  std::vector<std::string> problems;
  int64_t bytes = 0;
  size_t tensors = 0;
};

Verdict verify_one(Storage& storage, const fs::path& path) {
  Verdict verdict{.path = path.string(), .problems = {}};
  try {
    const Checkpoint checkpoint = open_tensors(storage, path);
    verdict.path = checkpoint.path().string();
    verdict.tensors = checkpoint.tensors().size();
    for (const FileRecord& file : checkpoint.files()) verdict.bytes += file.bytes;
    int64_t in_tensors = 0;
    for (const TensorRecord& tensor : checkpoint.tensors()) in_tensors += tensor.nbytes();
    std::optional<Progress> progress;
    if (in_tensors > kLongRead)
      progress.emplace(concat("verify ", checkpoint.path().filename().string()));
    verdict.problems = checkpoint.verify([&](int64_t bytes) {
      if (progress) progress->show(static_cast<uint64_t>(bytes), static_cast<uint64_t>(in_tensors));
    });
    if (!checkpoint.checksummed())
      log_warning(concat(verdict.path, " carries no checksums: only its form was checked"));
  } catch (const DamagedError& error) {
    verdict.problems.emplace_back(error.what());
  }
  return verdict;
}

int verify(const Options& options) {
  PosixStorage storage;
  std::vector<fs::path> paths = {options.path};
  if (const auto checkpoints = checkpoints_of(storage, options.path)) {
    paths.clear();
    for (const CheckpointEntry& entry : list_checkpoints(storage, *checkpoints))
      if (entry.name.state == CheckpointName::State::committed) paths.push_back(entry.path);
    TRIREME_CHECK(!paths.empty(), "ckpt verify: ", checkpoints->string(),
                  " holds no committed checkpoint");
  }
  json document = {{"sound", true}, {"checkpoints", json::array()}};
  int64_t damaged = 0;
  for (const fs::path& path : paths) {
    const Verdict verdict = verify_one(storage, path);
    const bool sound = verdict.problems.empty();
    // The run may have removed it meanwhile.
    if (!sound && paths.size() > 1 && !storage.list(path)) continue;
    damaged += !sound;
    document["checkpoints"].push_back(
        {{"path", verdict.path}, {"sound", sound}, {"problems", verdict.problems}});
    if (options.json) continue;
    if (sound)
      std::printf("%s: sound, %zu tensors, %s\n", verdict.path.c_str(), verdict.tensors,
                  format_bytes(static_cast<uint64_t>(verdict.bytes)).c_str());
    for (const std::string& problem : verdict.problems)
      std::printf("damaged: %s\n", printable(problem).c_str());
  }
  document["sound"] = damaged == 0;
  if (options.json) print(document);
  std::fflush(stdout);
  if (damaged > 0)
    throw CheckError(concat(
        damaged, " of ", paths.size(), paths.size() == 1 ? " checkpoint is" : " checkpoints are",
        " damaged\nnext: `train --resume` falls back to the newest one that is sound; "
        "restore the files from a copy if there is one"));
  return 0;
}

int diff(const Options& options) {
  PosixStorage storage;
  const Checkpoint a = open_tensors(storage, options.path);
  const Checkpoint b = open_tensors(storage, options.other);
  const auto found = differences(a, b, options.kind);
  if (options.json) {
    json document = {{"equal", found.empty()}, {"differences", json::array()}};
    for (const TensorDifference& d : found)
      document["differences"].push_back({{"name", d.name},
                                         {"what", d.what},
                                         {"a", d.a},
                                         {"b", d.b},
                                         {"differing", d.differing},
                                         {"numel", d.numel},
                                         {"max_abs", number_or_null(d.max_abs)},
                                         {"relative", number_or_null(d.relative)}});
    print(document);
  } else if (!found.empty()) {
    std::vector<std::vector<std::string>> rows = {
        {"tensor", "differs in", "A", "B", "elements", "of", "max |A-B|", "|A-B| / |B|"}};
    for (const TensorDifference& d : found) {
      const bool values = d.differing > 0;
      rows.push_back({printable(d.name), d.what, d.a, d.b,
                      values ? format_count(static_cast<uint64_t>(d.differing)) : "",
                      values ? format_count(static_cast<uint64_t>(d.numel)) : "",
                      values ? shown(d.max_abs) : "", values ? shown(d.relative) : ""});
    }
    print_table(rows);
  }
  std::fflush(stdout);
  if (!found.empty())
    throw CheckError(concat(found.size(), found.size() == 1 ? " tensor differs" : " tensors differ",
                            " between ", a.path().string(), " (A) and ", b.path().string(),
                            " (B)"));
  log_info(concat("no tensor differs between ", a.path().string(), " and ", b.path().string()));
  return 0;
}

int prune(const Options& options) {
  PosixStorage storage;
  const fs::path checkpoints = require_checkpoints(storage, options.path, "prune");
  const auto removed = prune_checkpoints(storage, checkpoints,
                                         {.keep = options.keep,
                                          .every_steps = options.every_steps,
                                          .names = options.names,
                                          .trusted = ""},
                                         options.dry_run);
  if (options.json) {
    json document = {{"removed", json::array()}, {"dry_run", options.dry_run}};
    for (const fs::path& path : removed) document["removed"].push_back(path.string());
    print(document);
    return 0;
  }
  for (const fs::path& path : removed) std::printf("%s\n", path.c_str());
  log_info(concat(options.dry_run ? "would remove " : "removed ", removed.size(), " of them"));
  return 0;
}

int convert_to(const Options& options) {
  PosixStorage storage;
  const Checkpoint from = open_tensors(storage, options.path);
  if (const fs::path parent = fs::path(options.other).parent_path(); !parent.empty())
    make_directories(parent);  // a path that cannot be is the user's matter
  if (options.format == "hf") {
    ExportOptions how;
    if (options.dtype) how.dtype = parse_dtype(*options.dtype);
    if (options.shard_bytes) how.shard_bytes = *options.shard_bytes;
    export_hugging_face(from, storage, options.other, how);
  } else {
    TRIREME_CHECK(!options.dtype && !options.shard_bytes,
                  "ckpt convert: --dtype and --shard-bytes have no effect with --to trireme");
    import_weights(from, storage, options.other, {{"trireme", TRIREME_VERSION}});
  }
  std::printf("%s\n", options.other.c_str());
  return 0;
}

constexpr const char* kCheckpointHelp =
    "a checkpoint, a run (its newest one), a Hugging Face directory or a file of tensors";

}  // namespace

Run declare_ckpt(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  struct Sub {
    CLI::App* app;
    int (*run)(const Options&);
  };
  const auto subs = std::make_shared<std::vector<Sub>>();
  const auto add = [&](const char* name, const char* summary, int (*run)(const Options&)) {
    CLI::App* sub = app.add_subcommand(name, summary);
    subs->push_back({sub, run});
    return sub;
  };
  const auto add_json = [&](CLI::App* sub) {
    sub->add_flag("--json", options->json, "one JSON document");
  };

  CLI::App* ls = add("ls", "list the checkpoints of a run", list);
  ls->add_option("RUN", options->path, "a run's directory, or its checkpoints/")->required();
  add_json(ls);

  CLI::App* showing = add("show", "show what a checkpoint holds, tensor by tensor", show);
  showing->add_option("CKPT", options->path, kCheckpointHelp)->required();
  showing->add_option("--kind", options->kind, "only tensors of this kind: weight, moment, …");
  showing->add_flag("--quick", options->quick, "names, types and shapes: reads no tensor");
  add_json(showing);

  CLI::App* verifying =
      add("verify", "check every byte of a checkpoint, or of all those of a run", verify);
  verifying->add_option("CKPT", options->path, "a checkpoint, or a run: all of its checkpoints")
      ->required();
  add_json(verifying);

  CLI::App* converting =
      add("convert", "write a checkpoint's weights as a Hugging Face directory, or the reverse",
          convert_to);
  converting->add_option("CKPT", options->path, kCheckpointHelp)->required();
  converting->add_option("DIR", options->other, "what to write; must not exist")->required();
  converting->add_option("--to", options->format, "hf or trireme")
      ->required()
      ->check(CLI::IsMember({"hf", "trireme"}));
  converting
      ->add_option("--dtype", options->dtype,
                   "of the weights: fp32, bf16, fp16, fp64; as stored if not given")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16", "fp64"}));
  converting
      ->add_option("--shard-bytes", options->shard_bytes,
                   "a larger model becomes several files with an index; 5 GB if not given")
      ->check(CLI::PositiveNumber);

  CLI::App* differing =
      add("diff", "say which tensors of two checkpoints differ, and by how much", diff);
  differing->add_option("A", options->path, kCheckpointHelp)->required();
  differing->add_option("B", options->other, "the same")->required();
  differing->add_option("--kind", options->kind, "only tensors of this kind: weight, moment, …");
  add_json(differing);

  CLI::App* pruning =
      add("prune", "remove old checkpoints of a run, never the newest good one", prune);
  pruning->add_option("RUN", options->path, "a run's directory, or its checkpoints/")->required();
  pruning->add_option("--keep", options->keep, "how many of the newest stay")
      ->required()
      ->check(CLI::PositiveNumber);
  pruning
      ->add_option("--keep-every", options->every_steps,
                   "also keep those whose step is a multiple of this")
      ->check(CLI::PositiveNumber);
  pruning->add_option("--keep-name", options->names,
                      "also keep this one, such as step-00000100; repeatable");
  pruning->add_flag("--dry-run", options->dry_run, "only say what would be removed");
  add_json(pruning);

  app.require_subcommand(1);
  return [options, subs] {
    for (const Sub& sub : *subs)
      if (sub.app->parsed()) return sub.run(*options);
    TRIREME_ASSERT(false, "no subcommand was parsed");
  };
}

}  // namespace trireme
