#include "train/metrics_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

std::optional<double> try_number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return std::numeric_limits<double>::infinity();
  if (value == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

// Throws when it is none; the caller counts the line as unreadable.
double read_number(const Json& value) {
  const auto number = try_number(value);
  return number ? *number : throw RunError("not a number");
}

int64_t read_count(const Json& value) {
  return value.is_number_integer() ? value.get<int64_t>() : throw RunError("not a count");
}

std::string text_of(const Json& line) {
  return line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

using NamedPart = std::pair<const char*, double StepParts::*>;

StepMetrics read_step(const Json& line, const std::string& unit) {
  StepMetrics step;
  bool has_step = false;
  for (const auto& [key, value] : line.items()) {
    if (key == "step") step.step = read_count(value), has_step = true;
    else if (key == unit) step.units = read_count(value);
    else if (key == "loss") step.loss = read_number(value);
    else if (key == "learning_rate") step.learning_rate = read_number(value);
    else if (key == "grad_norm") step.grad_norm = read_number(value);
    else if (key == "step_seconds") step.step_seconds = read_number(value);
    else if (key == unit + "_per_second") step.units_per_second = read_number(value);
    else if (key == "mfu") step.mfu = read_number(value);
    else if (key == "peak_memory_bytes") step.peak_memory_bytes = read_count(value);
    else if (const auto* part = std::ranges::find(kStepParts, key, &NamedPart::first);
             part != std::end(kStepParts)) {
      if (!step.parts) step.parts.emplace();
      *step.parts.*(part->second) = read_number(value);
    } else if (const auto more = try_number(value)) step.more.emplace_back(key, *more);
  }
  return has_step ? step : throw RunError("no step");
}

EvalMetrics read_evaluation(const Json& line, const std::string& unit) {
  EvalMetrics evaluation;
  for (const auto& [key, value] : line.items()) {
    if (key == "kind") continue;
    if (key == "step") evaluation.step = read_count(value);
    else if (key == unit) evaluation.units = read_count(value);
    else if (key == "split") evaluation.split = value.get<std::string>();
    else if (key == "eval_seconds") evaluation.seconds = read_number(value);
    else if (const auto number = try_number(value)) evaluation.values.emplace_back(key, *number);
  }
  return evaluation;
}

bool is_evaluation(const Json& line) {
  const auto kind = line.find("kind");
  return kind != line.end() && *kind == "eval";
}

// Calls visit(line, json) for each line; json is discarded where the line is torn or damaged.
// Every line that is passed as good is an object with a `step`.
template <class Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const bool torn = end == std::string_view::npos;
    const std::string_view line = text.substr(0, torn ? text.size() : end + 1);
    text.remove_prefix(line.size());
    Json json(Json::value_t::discarded);
    if (auto parsed = try_parse_json<Json>(line); !torn && parsed.ok())
      json = std::move(parsed).value();
    const bool good = json.is_object() && json.contains("step") && json["step"].is_number_integer();
    visit(line, good ? std::move(json) : Json(Json::value_t::discarded));
  }
}

std::string content_of(const fs::path& path) {
  return fs::exists(path) ? read_file(path) : std::string();
}

// Cuts what a resumed run will write again; returns the path.
fs::path prepare(fs::path path, int64_t keep_through_step, int64_t& last_evaluation) {
  const std::string before = content_of(path);
  std::string after;
  int64_t unreadable = 0;
  for_each_line(before, [&](std::string_view line, const Json& json) {
    if (json.is_discarded()) return void(unreadable += line.ends_with('\n'));
    const int64_t step = json["step"].get<int64_t>();
    if (step > keep_through_step) return;
    after += line;
    if (is_evaluation(json)) last_evaluation = std::max(last_evaluation, step);
  });
  if (unreadable > 0)
    log_warning(concat("cut ", unreadable, " damaged lines from ", path.string()));
  if (after.size() != before.size()) write_file(path, after);
  return path;
}

}  // namespace

MetricsFile::MetricsFile(fs::path path, std::string unit, int64_t keep_through_step)
    : unit_(std::move(unit)), file_(prepare(path, keep_through_step, last_evaluation_)) {}

void MetricsFile::add(const StepMetrics& step) {
  Json line = {{"step", step.step},
               {unit_, step.units},
               {"loss", number(step.loss)},
               {"learning_rate", number(step.learning_rate)},
               {"grad_norm", number(step.grad_norm)},
               {"step_seconds", number(step.step_seconds)},
               {unit_ + "_per_second", number(step.units_per_second)}};
  if (step.mfu) line["mfu"] = number(*step.mfu);
  line["peak_memory_bytes"] = step.peak_memory_bytes;
  if (step.parts)
    for (const auto& [name, part] : kStepParts) line[name] = number(*step.parts.*part);
  for (const auto& [name, value] : step.more) line[name] = number(value);
  file_.append(text_of(line));
}

void MetricsFile::add(const EvalMetrics& evaluation) {
  Json line = {{"kind", "eval"}, {"step", evaluation.step}, {unit_, evaluation.units}};
  if (!evaluation.split.empty()) line["split"] = evaluation.split;
  for (const auto& [name, value] : evaluation.values) line[name] = number(value);
  line["eval_seconds"] = number(evaluation.seconds);
  file_.append(text_of(line));
  last_evaluation_ = std::max(last_evaluation_, evaluation.step);
}

void MetricsFile::add(const SampleText& sample) {
  file_.append(text_of({{"kind", "sample"},
                        {"step", sample.step},
                        {"prompt", sample.prompt},
                        {"text", sample.text}}));
}

Metrics read_metrics(const fs::path& path, const std::string& unit) {
  Metrics metrics;
  for_each_line(content_of(path), [&](std::string_view, const Json& json) {
    try {
      if (json.is_discarded()) throw RunError("torn");
      const std::string kind = json.value("kind", "step");
      if (kind == "step") metrics.steps.push_back(read_step(json, unit));
      else if (kind == "eval") metrics.evaluations.push_back(read_evaluation(json, unit));
      else if (kind == "sample")
        metrics.samples.push_back({.step = read_count(json.at("step")),
                                   .prompt = json.at("prompt").get<std::string>(),
                                   .text = json.at("text").get<std::string>()});
    } catch (const RunError&) {
      ++metrics.unreadable_lines;
    } catch (const Json::exception&) {  // an absent member, or one of another type
      ++metrics.unreadable_lines;
    }
  });
  return metrics;
}

}  // namespace trireme
