#include "train/report/report.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/random.h"
#include "train/report/assets.h"
#include "train/report/axis.h"
#include "train/report/curves.h"
#include "train/report/html.h"
#include "train/report/sections.h"

namespace trireme {
namespace {

using namespace report;

Html body_of(const RunView& run, const ReportFacts& facts) {
  Html out;
  out.add("<main>").add(header(run, facts)).add(incidents(run, facts));
  out.add("<section aria-labelledby=\"h-curves\"><h2 id=\"h-curves\">Learning</h2>");
  const Html charts = curves(run, facts);
  if (charts.empty()) out.add("<p class=\"note\">No step was finished.</p>");
  out.add(charts).add(evaluations(run, facts)).add("</section>");
  out.add(samples(run))
      .add(ledger(run))
      .add(step_time(run))
      .add(fact_tables(facts))
      .add(recipe(run));
  out.add("<footer>");
  if (run.metrics.unreadable_lines > 0)
    out.text(counted(run.metrics.unreadable_lines, "line") +
             " of metrics.jsonl could not be read. ");
  out.add(
      "Beside this page: <a href=\"metrics.jsonl\">metrics.jsonl</a>, "
      "<a href=\"ledger.json\">ledger.json</a>, <a "
      "href=\"recipe.toml\">recipe.toml</a>.</footer></main>");
  return out;
}

// The page may load nothing and run nothing but our own script, which carries this word. It is a
// hash of the page's content, so no text in the page can contain it but by knowing itself.
Html nonce_of(const Html& body) { return Html().number(hash_name(body.str())); }

std::string shares_of_time(const LedgerRecord& ledger) {
  const BucketTimes times = ledger.totals();
  const auto order = largest_first(times);
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(order.size(), 4); ++i) {
    const auto time = static_cast<double>(times[static_cast<size_t>(order[i])].count());
    out += concat(i ? ", " : "", bucket_name(order[i]), " ",
                  percent(time / static_cast<double>(ledger.wall().count())));
  }
  return out;
}

}  // namespace

std::string report_html(const fs::path& run_dir, const ReportFacts& facts) {
  const RunView run = view_run(run_dir, facts.unit);
  const Html body = body_of(run, facts);
  const Html nonce = nonce_of(body);
  Html page;
  page.add(
          "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"
          "<meta name=\"color-scheme\" content=\"light dark\">"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; img-src "
          "data:; "
          "style-src 'unsafe-inline'; script-src 'nonce-")
      .add(nonce)
      .add("'\"><link rel=\"icon\" href=\"data:,\"><title>");
  page.text(facts.title).add(" · ").text(facts.task).add("</title><style>").add(asset(kStyle));
  page.add("</style></head>\n<body>").add(body);
  page.add("<script nonce=\"")
      .add(nonce)
      .add("\">")
      .add(asset(kScript))
      .add("</script></body></html>\n");
  return page.str();
}

void write_report(const fs::path& run_dir, const ReportFacts& facts) {
  write_file(run_dir / "report.html", report_html(run_dir, facts));
}

std::string summary_text(const fs::path& run_dir, const ReportFacts& facts) {
  const RunView run = view_run(run_dir, facts.unit);
  std::string out = concat(facts.title, ": ", outcome_sentence(run, true));
  if (run.units() > 0)
    out += concat(", ", format_count(static_cast<uint64_t>(run.units())), " ", facts.unit);
  if (!run.ledger.attempts.empty())
    out += ", " + format_duration(std::chrono::duration<double>(run.ledger.wall()));
  out += "\n";
  std::string quality;
  for (const HeldOutMetric& metric : facts.held_out)
    if (const auto figure = held_out_figure(run, metric))
      quality += concat(quality.empty() ? "  held out  " : ", ", significant(figure->value), " ",
                        metric.label, figure->split.empty() ? "" : " (" + figure->split + ")");
  if (!quality.empty()) out += quality + "\n";
  if (const auto loss = final_loss(run))
    out += concat("  loss      ", significant(loss->value), "\n");
  if (const auto pace = speed(run)) {
    out += concat("  speed     ", significant(pace->units_per_second), " ", facts.unit, "/s");
    if (pace->mfu) out += concat(", MFU ", percent(*pace->mfu));
    if (pace->mfu && !facts.mfu_convention.empty()) out += " (" + facts.mfu_convention + ")";
    out += "\n";
  }
  if (run.ledger.wall().count() > 0)
    out += concat("  time      ", shares_of_time(run.ledger), "\n");
  return out + concat("  report    ", (run_dir / "report.html").string(), "\n");
}

}  // namespace trireme
