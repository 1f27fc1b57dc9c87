// report.html: one self-contained page about a run, and the few lines that end its output.
//
// Both are made from the run directory's files (metrics.jsonl, ledger.json, recipe.toml) and from
// what only the task can say: its words, its model, its machine. A missing file leaves out its
// part; a run that stopped before its first step still has a page. The page loads nothing, is read
// without JavaScript, on a phone and in the dark, and treats every string as text.
//
// Size: curves are cut to at most two points a column of pixels, so 100,000 steps stay below 1 MB.
// Cost: about 5 µs a line of metrics.jsonl, and the files' content in memory. Any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

namespace fs = std::filesystem;

struct Fact {
  std::string name, value;
};

// A figure at the head of the page: {"AUC", "0.7712", "test split, at the best valid step"}.
struct Headline {
  std::string name, value, note;
};

// A field of the evaluation lines, and how to speak about it.
struct HeldOutMetric {
  std::string key;    // "bits_per_byte"
  std::string label;  // "bits per byte"
  bool higher_is_better = false;
};

struct Incident {
  int64_t step = 0;  // 0: before the first
  std::string what;
};

struct ReportFacts {
  std::string title;              // "code-nano"
  std::string task;               // "pretrain"
  std::string subtitle;           // one sentence for a stranger; may be empty
  std::string unit = "samples";   // what a step consumes, in the plural, as in metrics.jsonl
  std::string loss_unit;          // of the loss's axis: "nats per …"; may be empty
  std::string loss_key = "loss";  // the evaluation field that is comparable with the training loss

  // The first one is the headline; each gets a curve; that of loss_key joins the
  // training loss.
  std::vector<HeldOutMetric> held_out;
  std::vector<Headline> headline;  // further figures, after those that the files give
  std::string mfu_convention;      // "causal attention counted, of 185 GFLOP/s (sgemm, measured)"

  std::vector<Fact> model, layout, memory, machine;  // tables; empty ones are left out
  std::vector<Incident> incidents;                   // besides those of ledger.json's attempts
};

// Writes run_dir/report.html, atomically. RunError when that fails or ledger.json is none.
void write_report(const fs::path& run_dir, const ReportFacts& facts);

// The page itself.
std::string report_html(const fs::path& run_dir, const ReportFacts& facts);

// Three to six lines for the end of a run's output: outcome, held-out figures, speed, where the
// time went, where the page is. Ends with a newline.
std::string summary_text(const fs::path& run_dir, const ReportFacts& facts);

}  // namespace trireme
