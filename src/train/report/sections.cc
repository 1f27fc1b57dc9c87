#include "train/report/sections.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "base/log.h"
#include "train/report/axis.h"
#include "train/report/toml_text.h"

namespace trireme::report {
namespace {

constexpr size_t kEvaluationRows = 40;
constexpr size_t kSampledSteps = 8;     // whose samples are shown
constexpr size_t kSampleBytes = 4'000;  // of one text
constexpr size_t kRecipeBytes = 100'000;
constexpr size_t kShortRecipeLines = 45;

// Says what a bucket holds to somebody who has never seen a ledger.
constexpr std::string_view kBucketMeanings[kBuckets] = {
    "before the first step",       "waiting for data",           "forward and backward",
    "waiting for lanes and ranks", "clipping and the optimizer", "on held-out data",
    "generating text to look at",  "writing checkpoints",        "everything else"};

std::string duration_text(std::chrono::nanoseconds time) {
  return format_duration(std::chrono::duration<double>(time));
}

std::string count_text(int64_t count) {
  return format_count(static_cast<uint64_t>(std::max<int64_t>(count, 0)));
}

// "2026-05-01T12:00:00Z" -> "2026-05-01 12:00 UTC"; anything else as it is.
std::string day_text(const std::string& stamp) {
  if (stamp.size() != 20 || stamp[10] != 'T' || stamp[19] != 'Z') return stamp;
  return stamp.substr(0, 10) + " " + stamp.substr(11, 5) + " UTC";
}

// At most `bytes` of the text, cut between two characters.
std::string_view clipped(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

std::string capital(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text;
}

std::vector<Headline> headline(const RunView& run, const ReportFacts& facts) {
  std::vector<Headline> out;
  if (!facts.held_out.empty()) {
    const HeldOutMetric& metric = facts.held_out.front();
    if (const auto figure = held_out_figure(run, metric)) {
      std::string note = figure->split.empty() ? "held out" : figure->split + " split";
      if (figure->best_step != figure->step)
        note += concat("; best ", significant(figure->best), " at step ",
                       count_text(figure->best_step));
      out.push_back({capital(metric.label), significant(figure->value), note});
    }
  }
  if (const auto loss = final_loss(run))
    out.push_back(
        {"Training loss", significant(loss->value),
         loss->steps > 1 ? "mean of the last " + counted(loss->steps, "step") : "last step"});
  if (const auto pace = speed(run)) {
    out.push_back({"Throughput", significant(pace->units_per_second),
                   concat(facts.unit, "/s; median step ",
                          format_duration(std::chrono::duration<double>(pace->step_seconds)))});
    if (pace->mfu) out.push_back({"MFU", percent(*pace->mfu), facts.mfu_convention});
  }
  if (!run.ledger.attempts.empty())
    out.push_back({"Duration", duration_text(run.ledger.wall()),
                   counted(static_cast<int64_t>(run.ledger.attempts.size()), "attempt")});
  int64_t memory = 0;
  for (const StepMetrics& step : run.metrics.steps)
    memory = std::max(memory, step.peak_memory_bytes);
  if (memory > 0)
    out.push_back(
        {"Peak memory", format_bytes(static_cast<uint64_t>(memory)), "largest of all steps"});
  out.insert(out.end(), facts.headline.begin(), facts.headline.end());
  return out;
}

// A figure with its units small: digits speak, "min" and "%" only explain.
void figure_value(Html& out, std::string_view value) {
  for (bool first = true; !value.empty(); first = false) {
    const size_t end = std::min(value.find(' '), value.size());
    const std::string_view word = value.substr(0, end);
    if (first) out.text(word);
    else if (std::isdigit(static_cast<unsigned char>(word[0]))) out.add(" ").text(word);
    else out.add("<i>&nbsp;").text(word).add("</i>");
    value.remove_prefix(std::min(value.find_first_not_of(' ', end), value.size()));
  }
}

void status(Html& out, Outcome outcome) {
  switch (outcome) {
    case Outcome::finished:
      out.add("<span class=\"status good\">finished</span>");
      break;
    case Outcome::stopped:
      out.add("<span class=\"status warn\">stopped</span>");
      break;
    case Outcome::failed:
      out.add("<span class=\"status bad\">failed</span>");
      break;
    case Outcome::unknown:
      out.add("<span class=\"status bad\">killed</span>");
      break;
    case Outcome::running:
      out.add("<span class=\"status\">running</span>");
      break;
  }
}

void fact_table(Html& out, Literal title, const std::vector<Fact>& facts) {
  if (facts.empty()) return;
  out.add("<div class=\"facts\"><h3>").add(title).add("</h3><dl>");
  for (const Fact& fact : facts)
    out.add("<div><dt>").text(fact.name).add("</dt><dd>").text(fact.value).add("</dd></div>");
  out.add("</dl></div>");
}

void attempts_list(Html& out, const LedgerRecord& ledger) {
  out.add("<h3>Attempts</h3><ol class=\"attempts\">");
  for (const Attempt& attempt : ledger.attempts) {
    const std::string from = count_text(attempt.resumed_after + 1);
    const std::string to = count_text(attempt.last_step);
    out.add("<li><div>");
    status(out, attempt.outcome);
    out.add("<span>");
    out.text(attempt.last_step > attempt.resumed_after ? concat("steps ", from, "–", to)
                                                       : "no step");
    out.add("</span><span>").text(duration_text(attempt.wall())).add("</span><span>");
    out.text(day_text(attempt.started)).add("</span></div>");
    if (!attempt.message.empty())
      out.add("<p>").text(clipped(attempt.message, kSampleBytes)).add("</p>");
    out.add("</li>");
  }
  out.add("</ol>");
}

void sample(Html& out, const SampleText& sample) {
  const std::string_view prompt = clipped(sample.prompt, kSampleBytes);
  const std::string_view text = clipped(sample.text, kSampleBytes);
  out.add("<pre class=\"sample\"><span class=\"prompt\">").text(prompt).add("</span>").text(text);
  if (prompt.size() + text.size() < sample.prompt.size() + sample.text.size())
    out.add("<span class=\"cut\"> … cut here</span>");
  out.add("</pre>");
}

}  // namespace

Html header(const RunView& run, const ReportFacts& facts) {
  Html out;
  out.add("<header><p class=\"eyebrow\">Trireme · ")
      .text(facts.task)
      .add("</p><h1>")
      .text(facts.title);
  out.add("</h1>");
  status(out, run.outcome());
  if (!facts.subtitle.empty()) out.add("<p class=\"subtitle\">").text(facts.subtitle).add("</p>");
  std::vector<std::string> parts;
  // Why a run failed stands among the incidents.
  parts.push_back(capital(outcome_sentence(run, run.outcome() != Outcome::failed)));
  if (run.units() > 0) parts.push_back(count_text(run.units()) + " " + facts.unit);
  if (!run.ledger.attempts.empty())
    parts.push_back("begun " + day_text(run.ledger.attempts.front().started));
  out.add("<p class=\"meta\">");
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out.add(" · ");
    out.add("<span>").text(parts[i]).add("</span>");
  }
  out.add("</p><dl class=\"headline\">");
  for (const Headline& figure : headline(run, facts)) {
    out.add("<div><dt>").text(figure.name).add("</dt><dd>");
    figure_value(out, figure.value);
    if (!figure.note.empty()) out.add("<small>").text(figure.note).add("</small>");
    out.add("</dd></div>");
  }
  out.add("</dl></header>");
  return out;
}

Html incidents(const RunView& run, const ReportFacts& facts) {
  const auto all = all_incidents(run, facts);
  Html out;
  if (all.empty()) return out;
  out.add(
      "<section class=\"incidents\" aria-labelledby=\"h-incidents\"><h2 "
      "id=\"h-incidents\">Incidents</h2><ul>");
  for (const Incident& incident : all) {
    out.add("<li><span class=\"step\">");
    if (incident.step > 0) out.add("step ").text(count_text(incident.step));
    else out.add("at start");
    out.add("</span><span class=\"what\">")
        .text(clipped(incident.what, kSampleBytes))
        .add("</span></li>");
  }
  out.add("</ul></section>");
  return out;
}

Html evaluations(const RunView& run, const ReportFacts& facts) {
  Html out;
  const auto& all = run.metrics.evaluations;
  if (all.empty()) return out;
  std::vector<std::string> keys;  // in the order of the facts, then as the file has them
  for (const HeldOutMetric& metric : facts.held_out) keys.push_back(metric.key);
  for (const EvalMetrics& evaluation : all)
    for (const auto& [name, value] : evaluation.values)
      if (std::ranges::find(keys, name) == keys.end() && keys.size() < 12) keys.push_back(name);
  const bool splits = std::ranges::any_of(all, [](auto& e) { return !e.split.empty(); });

  out.add("<details class=\"table\"><summary>");
  const size_t rows = std::min(all.size(), kEvaluationRows);
  out.text(counted(static_cast<int64_t>(all.size()), "evaluation") + " in numbers");
  if (rows < all.size()) out.text(concat(" (", rows, " of them)"));
  out.add("</summary><div class=\"scroll\"><table class=\"numbers\"><thead><tr><th>step</th>");
  if (splits) out.add("<th class=\"words\">split</th>");
  for (const std::string& key : keys) {
    std::string words = key;
    std::ranges::replace(words, '_', ' ');
    out.add("<th>").text(words).add("</th>");
  }
  out.add("</tr></thead><tbody>");
  for (size_t row = 1; row <= rows; ++row) {
    const EvalMetrics& evaluation = all[row * all.size() / rows - 1];
    out.add("<tr><td>").text(count_text(evaluation.step)).add("</td>");
    if (splits) out.add("<td class=\"words\">").text(evaluation.split).add("</td>");
    for (const std::string& key : keys) {
      const auto value = std::ranges::find(evaluation.values, key, [](auto& v) { return v.first; });
      out.add("<td>")
          .text(value == evaluation.values.end() ? "" : significant(value->second, 5))
          .add("</td>");
    }
    out.add("</tr>");
  }
  out.add("</tbody></table></div></details>");
  return out;
}

Html ledger(const RunView& run) {
  Html out;
  const BucketTimes times = run.ledger.totals();
  const auto wall = static_cast<double>(run.ledger.wall().count());
  if (wall <= 0) return out;
  out.add(
      "<section aria-labelledby=\"h-ledger\"><h2 id=\"h-ledger\">Where the time went</h2>"
      "<div class=\"bar\" role=\"img\" aria-label=\"Shares of the wall time, as in the table\">");
  Html rows;
  for (const Bucket bucket : largest_first(times)) {
    const auto index = static_cast<size_t>(bucket);
    const double share = static_cast<double>(times[index].count()) / wall;
    out.add("<span class=\"b").number(index).add("\" style=\"flex-grow:").number(1000 * share, 3);
    out.add("\" title=\"").text(bucket_name(bucket)).add("\"></span>");
    rows.add("<tr><th scope=\"row\"><span class=\"swatch b").number(index).add("\"></span>");
    rows.text(bucket_name(bucket)).add(" <small>").text(kBucketMeanings[index]);
    rows.add("</small></th><td>").text(duration_text(times[index])).add("</td><td>");
    rows.text(percent(share)).add("</td></tr>");
  }
  out.add("</div><table class=\"numbers ledger\"><tbody>").add(rows);
  out.add("</tbody><tfoot><tr><th scope=\"row\">wall time</th><td>")
      .text(duration_text(run.ledger.wall()));
  out.add("</td><td>100 %</td></tr></tfoot></table>");
  if (const int64_t repeated = run.ledger.repeated_steps(); repeated > 0)
    out.add("<p class=\"note\">")
        .text(counted(repeated, "step"))
        .add(" done again after a resume.</p>");
  if (run.ledger.attempts.size() > 1) attempts_list(out, run.ledger);
  out.add("</section>");
  return out;
}

Html step_time(const RunView& run) {
  struct Row {
    double StepParts::* part;
    Literal name, meaning, colour;
  };
  static constexpr Row kRows[] = {
      {&StepParts::gemm_seconds, "gemm", "matrix products", "b2"},
      {&StepParts::attention_seconds, "attention", "scores, softmax and their gradients", "b3"},
      {&StepParts::other_compute_seconds, "other compute", "norms, activations, loss, rows", "b1"},
      {&StepParts::update_seconds, "update", "adding gradients up, clipping, the optimizer", "b4"},
      {&StepParts::waiting_seconds, "waiting", "for data, lanes and ranks", "b8"}};
  Html out, rows;
  const auto parts = parts_of_a_step(run);
  if (!parts) return out;
  double step = 0;
  for (const Row& row : kRows) step += *parts.*row.part;
  if (step <= 0) return out;
  out.add(
      "<section aria-labelledby=\"h-step\"><h2 id=\"h-step\">Where a step goes</h2>"
      "<div class=\"bar\" role=\"img\" aria-label=\"Shares of a step, as in the table\">");
  for (const Row& row : kRows) {
    const double seconds = std::max(0.0, *parts.*row.part), share = seconds / step;
    if (seconds == 0) continue;
    out.add("<span class=\"").add(row.colour).add("\" style=\"flex-grow:").number(1000 * share, 3);
    out.add("\" title=\"").add(row.name).add("\"></span>");
    rows.add("<tr><th scope=\"row\"><span class=\"swatch ").add(row.colour).add("\"></span>");
    rows.add(row.name).add(" <small>").add(row.meaning).add("</small></th><td>");
    rows.text(format_duration(std::chrono::duration<double>(seconds))).add("</td><td>");
    rows.text(percent(share)).add("</td></tr>");
  }
  out.add("</div><table class=\"numbers ledger\"><tbody>").add(rows);
  out.add("</tbody><tfoot><tr><th scope=\"row\">mean step</th><td>")
      .text(format_duration(std::chrono::duration<double>(step)));
  out.add(
      "</td><td>100 %</td></tr></tfoot></table><p class=\"note\">The mean over the first rank's "
      "lanes, without the first step.</p></section>");
  return out;
}

Html samples(const RunView& run) {
  Html out;
  const auto& all = run.metrics.samples;
  if (all.empty()) return out;
  std::vector<int64_t> steps;
  for (const SampleText& text : all)
    if (steps.empty() || steps.back() != text.step) steps.push_back(text.step);
  std::vector<int64_t> shown;
  const size_t count = std::min(steps.size(), kSampledSteps);
  for (size_t i = 1; i <= count; ++i) shown.push_back(steps[i * steps.size() / count - 1]);
  std::ranges::reverse(shown);

  out.add(
      "<section aria-labelledby=\"h-samples\"><h2 id=\"h-samples\">Samples</h2><p class=\"note\">"
      "The newest first. <span class=\"prompt\">What was given</span>, and what the model went on "
      "with");
  if (shown.size() < steps.size())
    out.text(concat("; ", shown.size(), " of ", count_text(static_cast<int64_t>(steps.size())),
                    " evaluations, all of them are in metrics.jsonl"));
  out.add(".</p>");
  for (size_t i = 0; i < shown.size(); ++i) {
    if (i == 0) out.add("<details open><summary>After step ");
    else out.add("<details><summary>After step ");
    out.text(count_text(shown[i])).add("</summary>");
    for (const SampleText& text : all)
      if (text.step == shown[i]) sample(out, text);
    out.add("</details>");
  }
  out.add("</section>");
  return out;
}

Html fact_tables(const ReportFacts& facts) {
  Html tables;
  fact_table(tables, "Model", facts.model);
  fact_table(tables, "Layout", facts.layout);
  fact_table(tables, "Memory", facts.memory);
  fact_table(tables, "Machine and versions", facts.machine);
  Html out;
  if (!tables.empty())
    out.add(
           "<section aria-labelledby=\"h-facts\"><h2 id=\"h-facts\">What ran</h2><div "
           "class=\"fact-tables\">")
        .add(tables)
        .add("</div></section>");
  return out;
}

Html recipe(const RunView& run) {
  Html out;
  if (run.recipe.empty()) return out;
  const auto lines = std::ranges::count(run.recipe, '\n');
  out.add("<section aria-labelledby=\"h-recipe\"><h2 id=\"h-recipe\">Recipe</h2>");
  if (lines <= static_cast<int64_t>(kShortRecipeLines)) out.add("<details open>");
  else out.add("<details>");
  out.add("<summary>")
      .text(counted(lines, "line"))
      .add(", every effective value</summary><pre class=\"recipe\">");
  out.add(highlighted_toml(clipped(run.recipe, kRecipeBytes))).add("</pre></details></section>");
  return out;
}

}  // namespace trireme::report
