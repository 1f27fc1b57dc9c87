#include "train/ledger.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;
using std::chrono::nanoseconds;

constexpr std::array<std::string_view, kBuckets> kBucketNames = {
    "start",      "data",     "compute",    "communication", "update",
    "evaluation", "sampling", "checkpoint", "other"};
constexpr std::array<std::string_view, 5> kOutcomeNames = {"running", "finished", "stopped",
                                                           "failed", "unknown"};

nanoseconds sum(const BucketTimes& times) {
  return std::accumulate(times.begin(), times.end(), nanoseconds(0));
}

std::string timestamp(std::chrono::system_clock::time_point when) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(when);
  std::tm parts{};
  char text[32];
  ::gmtime_r(&seconds, &parts);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

// JSON is written here by hand because a number in it has to be the exact decimal: nine digits
// after the point, so that a reader who sums decimals gets equality.
std::string seconds_text(nanoseconds time) {
  char text[40];
  std::snprintf(text, sizeof text, "%" PRId64 ".%09" PRId64, time.count() / 1'000'000'000,
                time.count() % 1'000'000'000);
  return text;
}

// Not named `quoted`: for a std::string, that would be std::quoted, which leaves control
// characters.
std::string json_text(std::string_view text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string times_text(const BucketTimes& times, const std::string& indent) {
  std::string out =
      indent + "\"wall_seconds\": " + seconds_text(sum(times)) + ",\n" + indent + "\"buckets\": {";
  for (size_t i = 0; i < kBuckets; ++i)
    out += concat(i ? ", " : "", "\"", kBucketNames[i], "\": ", seconds_text(times[i]));
  return out + "}";
}

std::string attempt_text(const Attempt& attempt, size_t number) {
  const std::string indent(6, ' ');
  return concat("    {\n", indent, "\"number\": ", number, ",\n", indent,
                "\"started\": ", json_text(attempt.started), ",\n", indent,
                "\"ended\": ", json_text(attempt.ended), ",\n", indent,
                "\"outcome\": ", json_text(outcome_name(attempt.outcome)), ",\n", indent,
                "\"message\": ", json_text(attempt.message), ",\n", indent,
                "\"resumed_after_step\": ", attempt.resumed_after, ",\n", indent,
                "\"last_step\": ", attempt.last_step, ",\n", times_text(attempt.buckets, indent),
                "\n    }");
}

std::string ledger_text(const LedgerRecord& record) {
  std::string out = "{\n  \"version\": 1,\n" + times_text(record.totals(), "  ") +
                    ",\n  \"repeated_steps\": " + std::to_string(record.repeated_steps()) +
                    ",\n  \"attempts\": [\n";
  for (size_t i = 0; i < record.attempts.size(); ++i)
    out +=
        attempt_text(record.attempts[i], i + 1) + (i + 1 < record.attempts.size() ? ",\n" : "\n");
  return out + "  ]\n}\n";
}

nanoseconds read_seconds(const Json& value) {
  const double seconds = value.get<double>();
  if (!(seconds >= 0 && seconds < 9e9)) throw RunError("a time out of range");
  return nanoseconds(std::llround(seconds * 1e9));  // exact up to 2^53 ns, 104 days
}

Attempt read_attempt(const Json& json) {
  Attempt attempt;
  attempt.started = json.at("started").get<std::string>();
  attempt.ended = json.at("ended").get<std::string>();
  attempt.message = json.at("message").get<std::string>();
  attempt.resumed_after = json.at("resumed_after_step").get<int64_t>();
  attempt.last_step = json.at("last_step").get<int64_t>();
  const auto outcome = std::ranges::find(kOutcomeNames, json.at("outcome").get<std::string>());
  if (outcome == kOutcomeNames.end()) throw RunError("an unknown outcome");
  attempt.outcome = static_cast<Outcome>(outcome - kOutcomeNames.begin());
  for (const auto& [name, value] : json.at("buckets").items()) {
    const auto bucket = std::ranges::find(kBucketNames, name);
    // A bucket of a newer version is time all the same.
    const size_t place = bucket == kBucketNames.end()
                             ? static_cast<size_t>(Bucket::other)
                             : static_cast<size_t>(bucket - kBucketNames.begin());
    attempt.buckets[place] += read_seconds(value);
  }
  return attempt;
}

}  // namespace

std::string_view bucket_name(Bucket bucket) { return kBucketNames[static_cast<size_t>(bucket)]; }
std::string_view outcome_name(Outcome outcome) {
  return kOutcomeNames[static_cast<size_t>(outcome)];
}

nanoseconds Attempt::wall() const { return sum(buckets); }

BucketTimes LedgerRecord::totals() const {
  BucketTimes totals{};
  for (const Attempt& attempt : attempts)
    for (size_t i = 0; i < kBuckets; ++i) totals[i] += attempt.buckets[i];
  return totals;
}

nanoseconds LedgerRecord::wall() const { return sum(totals()); }

int64_t LedgerRecord::repeated_steps() const {
  int64_t repeated = 0, highest = 0;
  for (const Attempt& attempt : attempts) {
    const int64_t again = std::min(attempt.last_step, highest) - attempt.resumed_after;
    repeated += std::max<int64_t>(again, 0);
    highest = std::max(highest, attempt.last_step);
  }
  return repeated;
}

LedgerRecord read_ledger(const fs::path& path) {
  LedgerRecord record;
  if (!fs::exists(path)) return record;
  try {
    Result<Json> parsed = try_parse_json<Json>(read_file(path));
    if (!parsed.ok()) throw std::runtime_error(parsed.reason());
    const Json& json = parsed.value();
    for (const Json& attempt : json.at("attempts"))
      record.attempts.push_back(read_attempt(attempt));
  } catch (const InputError&) {
    throw;
  } catch (const std::exception& error) {
    throw RunError(concat("cannot read the ledger ", path.string(), ": ", error.what()));
  }
  return record;
}

Ledger::Ledger(fs::path path, int64_t resumed_after, Options options)
    : path_(std::move(path)), options_(std::move(options)), open_{Bucket::start} {
  if (!options_.monotonic)
    options_.monotonic = [] {
      return nanoseconds(std::chrono::steady_clock::now().time_since_epoch());
    };
  if (!options_.wall_clock) options_.wall_clock = std::chrono::system_clock::now;
  try {
    record_ = read_ledger(path_);
  } catch (const RunError& error) {
    const fs::path aside = path_.string() + ".unreadable";
    std::error_code failed;
    fs::rename(path_, aside, failed);
    log_warning(concat(error.what(), "\n  it lies in ", aside.string(),
                       " now, and the account begins anew"));
  }
  for (Attempt& attempt : record_.attempts)
    if (attempt.outcome == Outcome::running) attempt.outcome = Outcome::unknown;

  charged_until_ = options_.monotonic();
  Attempt attempt;
  attempt.started =
      timestamp(options_.wall_clock() -
                std::chrono::duration_cast<std::chrono::system_clock::duration>(options_.before));
  attempt.resumed_after = attempt.last_step = resumed_after;
  attempt.buckets[static_cast<size_t>(Bucket::start)] = options_.before;
  record_.attempts.push_back(std::move(attempt));
  write();
}

// All that passed since the last charge belongs to the innermost scope.
void Ledger::charge() {
  if (finished_) return;
  const nanoseconds now = options_.monotonic();
  attempt().buckets[static_cast<size_t>(open_.back())] += now - charged_until_;
  charged_until_ = now;
}

Ledger::Scope Ledger::in(Bucket bucket) {
  charge();
  open_.push_back(bucket);
  return Scope(*this, open_.size());
}

void Ledger::leave(size_t depth) {
  charge();
  TRIREME_ASSERT(open_.size() == depth, "a ledger scope closed before one inside it");
  open_.pop_back();
}

void Ledger::started() {
  charge();
  open_.front() = Bucket::other;
}

void Ledger::step_done(int64_t step) {
  charge();
  attempt().last_step = step;
  if (charged_until_ - written_at_ < options_.write_every) return;
  try {
    write();
  } catch (const RunError& error) {
    if (!std::exchange(warned_, true))
      log_warning(concat(error.what(), "\n  the run goes on, its ledger is behind"));
  }
}

nanoseconds Ledger::move(Bucket from, Bucket to, nanoseconds time) {
  charge();
  nanoseconds& source = attempt().buckets[static_cast<size_t>(from)];
  const nanoseconds taken = std::clamp(time, nanoseconds(0), source);
  source -= taken;
  attempt().buckets[static_cast<size_t>(to)] += taken;
  return taken;
}

void Ledger::write() {
  charge();
  written_at_ = charged_until_;
  attempt().ended = timestamp(options_.wall_clock());
  write_file(path_, ledger_text(record_));
}

void Ledger::finish(Outcome outcome, std::string message) {
  charge();
  finished_ = true;
  attempt().outcome = outcome;
  attempt().message = std::move(message);
  write();
}

const LedgerRecord& Ledger::record() {
  charge();
  return record_;
}

}  // namespace trireme
