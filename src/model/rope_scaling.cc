#include "model/rope_scaling.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernel/rope.h"

namespace trireme {
namespace {

using nlohmann::json;

struct Named {
  const char* name;
  RopeSpec::Kind kind;
};
constexpr Named kKinds[] = {
    {"default", RopeSpec::Kind::plain},   {"linear", RopeSpec::Kind::linear},
    {"dynamic", RopeSpec::Kind::dynamic}, {"yarn", RopeSpec::Kind::yarn},
    {"llama3", RopeSpec::Kind::llama3},   {"longrope", RopeSpec::Kind::longrope},
};

RopeSpec::Kind kind_of(const std::string& name, const std::string& where) {
  std::string known;
  for (const Named& one : kKinds) {
    if (name == one.name) return one.kind;
    known += concat(known.empty() ? "" : ", ", one.name);
  }
  throw InputError(
      concat(where, ": the RoPE type '", shown_text(name), "' is not known; there is ", known));
}

// g(m) of llm conventions: how YaRN sharpens attention.
double yarn_sharpness(double factor, double m) {
  return factor > 1 ? 0.1 * m * std::log(factor) + 1 : 1;
}

std::vector<double> read_factors(ConfigReader& reader, const char* key, size_t count) {
  const json* list = reader.find(key);
  TRIREME_CHECK(list && list->is_array() && list->size() == count, reader.where(key),
                " must be a list of ", count, " factors, got ",
                list ? shown_value(*list) : std::string("none"));
  std::vector<double> factors;
  for (const json& value : *list) {
    TRIREME_CHECK(
        value.is_number() && std::isfinite(value.get<double>()) && value.get<double>() > 0,
        reader.where(key), " must hold factors above 0, got ", shown_value(value));
    factors.push_back(value.get<double>());
  }
  return factors;
}

void read_yarn(ConfigReader& reader, RopeSpec& spec) {
  spec.beta_fast = reader.positive("beta_fast", 32);
  spec.beta_slow = reader.positive("beta_slow", 1);
  spec.truncate = reader.flag("truncate", true);
  const bool both = reader.find("mscale") && reader.find("mscale_all_dim");
  const double implied = both ? yarn_sharpness(spec.factor, reader.positive("mscale")) /
                                    yarn_sharpness(spec.factor, reader.positive("mscale_all_dim"))
                              : yarn_sharpness(spec.factor, 1);
  spec.attention_factor = reader.positive("attention_factor", implied);
}

// A trained length that is said gives the factor, whatever "factor" says, as transformers has it.
void read_longrope(ConfigReader& reader, int64_t max_positions, RopeSpec& spec) {
  const auto half = static_cast<size_t>(spec.rotary_dim / 2);
  spec.short_factors = read_factors(reader, "short_factor", half);
  spec.long_factors = read_factors(reader, "long_factor", half);
  spec.factor = reader.positive("factor", 1);
  if (spec.trained != max_positions)
    spec.factor = static_cast<double>(max_positions) / static_cast<double>(spec.trained);
  const double implied =
      spec.factor > 1
          ? std::sqrt(1 + std::log(spec.factor) / std::log(static_cast<double>(spec.trained)))
          : 1;
  spec.attention_factor = reader.positive("attention_factor", implied);
}

// What the type of scaling says; theta is set.
void read_scaling(const json& object, const std::string& where, int64_t trained,
                  int64_t max_positions, RopeSpec& spec) {
  TRIREME_CHECK(object.is_object(), where, " must be an object, got ", shown_value(object));
  ConfigReader reader(object, where, "RoPE");
  const std::string type = reader.text("rope_type", reader.text("type", "default"));
  spec.kind = kind_of(type, where);
  reader.harmless({"rope_theta"});
  spec.trained = trained;
  if (spec.kind != RopeSpec::Kind::plain && spec.kind != RopeSpec::Kind::longrope)
    spec.factor = reader.positive("factor");
  // transformers ignores it for these types, so configurations carry it and it has no effect.
  const int64_t original = reader.size("original_max_position_embeddings", trained);
  const bool ignored = spec.kind == RopeSpec::Kind::plain || spec.kind == RopeSpec::Kind::linear ||
                       spec.kind == RopeSpec::Kind::dynamic;
  if (!ignored) spec.trained = original;
  switch (spec.kind) {
    case RopeSpec::Kind::plain:
    case RopeSpec::Kind::linear:
    case RopeSpec::Kind::dynamic:
      break;
    case RopeSpec::Kind::yarn:
      read_yarn(reader, spec);
      break;
    case RopeSpec::Kind::llama3:
      spec.low_freq = reader.positive("low_freq_factor");
      spec.high_freq = reader.positive("high_freq_factor");
      TRIREME_CHECK(spec.low_freq < spec.high_freq, where, ": low_freq_factor ", spec.low_freq,
                    " must be below high_freq_factor ", spec.high_freq);
      break;
    case RopeSpec::Kind::longrope:
      read_longrope(reader, max_positions, spec);
      break;
  }
  reader.finish();
}

std::vector<double> yarn_frequencies(const RopeSpec& spec, std::vector<double> f) {
  const double r = static_cast<double>(spec.rotary_dim);
  const auto dim = [&](double rotations) {
    return r * std::log(static_cast<double>(spec.trained) / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(spec.theta));
  };
  double low = dim(spec.beta_fast), high = dim(spec.beta_slow);
  if (spec.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, r - 1);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < f.size(); ++i) {
    const double t = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    f[i] *= t / spec.factor + 1 - t;
  }
  return f;
}

double llama3_frequency(const RopeSpec& spec, double f) {
  const double trained = static_cast<double>(spec.trained), length = 2 * std::numbers::pi / f;
  if (length < trained / spec.high_freq) return f;
  if (length > trained / spec.low_freq) return f / spec.factor;
  const double u = (trained / length - spec.low_freq) / (spec.high_freq - spec.low_freq);
  return (1 - u) * f / spec.factor + u * f;
}

}  // namespace

RopeSpec read_rope(ConfigReader& config, int64_t rotary_dim, int64_t max_positions,
                   double default_theta, const std::string& layer_type) {
  RopeSpec spec{.rotary_dim = rotary_dim};
  // Phi-3 and others say the trained length beside the scaling.
  const int64_t trained = config.size("original_max_position_embeddings", max_positions);
  const json* parameters = config.find("rope_parameters");
  std::string where = config.where("rope_parameters");
  if (parameters && !layer_type.empty() && parameters->is_object() &&
      parameters->contains(layer_type)) {
    parameters = &parameters->at(layer_type);
    where += concat(" of ", layer_type);
  }
  spec.theta = config.positive("rope_theta", default_theta);
  if (parameters) {
    TRIREME_CHECK(!config.find("rope_scaling"), config.where("rope_scaling"),
                  " and \"rope_parameters\" contradict each other");
    TRIREME_CHECK(parameters->is_object(), where, " must be an object, got ",
                  shown_value(*parameters));
    if (parameters->contains("rope_theta"))
      spec.theta = ConfigReader(*parameters, where, "RoPE").positive("rope_theta");
    read_scaling(*parameters, where, trained, max_positions, spec);
  } else if (const json* scaling = config.find("rope_scaling")) {
    read_scaling(*scaling, config.where("rope_scaling"), trained, max_positions, spec);
  }
  return spec;
}

std::vector<double> frequencies_of(const RopeSpec& spec, int64_t sequence) {
  std::vector<double> f = kernel::rope_frequencies(spec.rotary_dim, spec.theta);
  switch (spec.kind) {
    case RopeSpec::Kind::plain:
      return f;
    case RopeSpec::Kind::linear:
      for (double& one : f) one /= spec.factor;
      return f;
    case RopeSpec::Kind::dynamic: {
      const double r = static_cast<double>(spec.rotary_dim);
      const double stretch =
          static_cast<double>(std::max(sequence, spec.trained)) / static_cast<double>(spec.trained);
      const double theta =
          spec.theta * std::pow(spec.factor * stretch - (spec.factor - 1), r / (r - 2));
      return kernel::rope_frequencies(spec.rotary_dim, theta);
    }
    case RopeSpec::Kind::yarn:
      return yarn_frequencies(spec, std::move(f));
    case RopeSpec::Kind::llama3:
      for (double& one : f) one = llama3_frequency(spec, one);
      return f;
    case RopeSpec::Kind::longrope: {
      const auto& factors = sequence > spec.trained ? spec.long_factors : spec.short_factors;
      for (size_t i = 0; i < f.size(); ++i) f[i] /= factors[i];
      return f;
    }
  }
  return f;
}

}  // namespace trireme
