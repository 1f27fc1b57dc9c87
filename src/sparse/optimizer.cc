#include "sparse/optimizer.h"

#include <cmath>
#include <optional>

namespace trireme {
namespace {

template <class Optimizer>
Optimizer with_settings(const OptimizerSettings& settings) {
  Optimizer optimizer;
  for (const auto& [name, value] : settings) {
    bool known = false;
    std::string names;
    optimizer.fields([&](const char* field, float& setting) {
      names += concat(names.empty() ? "" : ", ", field);
      if (name != field) return;
      known = true;
      setting = static_cast<float>(value);
    });
    TRIREME_CHECK(known, "table optimizer ", Optimizer::kKind, ": no setting '", name, "'; it has ",
                  names);
    TRIREME_CHECK(std::isfinite(static_cast<float>(value)), "table optimizer ", Optimizer::kKind,
                  ": ", name, " must be a finite number, got ", value);
  }
  optimizer.check();
  return optimizer;
}

template <size_t... Index>
std::optional<RowOptimizer> make(std::string_view kind, const OptimizerSettings& settings,
                                 std::string& kinds, std::index_sequence<Index...>) {
  std::optional<RowOptimizer> made;
  const auto try_kind = [&]<class Optimizer>(std::type_identity<Optimizer>) {
    kinds += concat(kinds.empty() ? "" : ", ", Optimizer::kKind);
    if (kind == Optimizer::kKind) made = with_settings<Optimizer>(settings);
  };
  (try_kind(std::type_identity<std::variant_alternative_t<Index, RowOptimizer>>()), ...);
  return made;
}

}  // namespace

RowOptimizer make_row_optimizer(std::string_view kind, const OptimizerSettings& settings) {
  std::string kinds;
  auto made =
      make(kind, settings, kinds, std::make_index_sequence<std::variant_size_v<RowOptimizer>>());
  TRIREME_CHECK(made.has_value(), "table optimizer: no kind '", kind, "'; there are ", kinds);
  return *made;
}

std::string_view kind_of(const RowOptimizer& optimizer) {
  return std::visit([](const auto& o) { return std::string_view(o.kKind); }, optimizer);
}

OptimizerSettings settings_of(const RowOptimizer& optimizer) {
  OptimizerSettings settings;
  auto copy = optimizer;  // fields() hands out what may be set
  std::visit(
      [&](auto& o) {
        o.fields([&](const char* name, float value) { settings.emplace_back(name, value); });
      },
      copy);
  return settings;
}

int moments_of(const RowOptimizer& optimizer) {
  return std::visit([](const auto& o) { return o.kMoments; }, optimizer);
}

}  // namespace trireme
