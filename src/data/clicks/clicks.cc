#include "data/clicks/clicks.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"

namespace trireme {

Clicks::Clicks(ClickOptions options) : options_(options) {
  TRIREME_CHECK(options.fields > 0 && options.ids > 0,
                "generated clicks: fields and ids must be positive, got ", options.fields, " and ",
                options.ids);
}

ClickSample Clicks::click(uint64_t index) const {
  const RandomStream places(options_.seed, "clicks/ids", index);
  ClickSample sample;
  sample.truth_logit = options_.bias;
  for (int64_t field = 0; field < options_.fields; ++field) {
    const double u = places.uniform(static_cast<uint64_t>(field));
    const double rank = std::floor(std::pow(static_cast<double>(options_.ids) + 1, u));  // 1 … ids
    const int64_t id = std::clamp<int64_t>(static_cast<int64_t>(rank) - 1, 0, options_.ids - 1);
    sample.ids.push_back(id);
    sample.truth_logit += weight(field, id);
  }
  const double probability = 1 / (1 + std::exp(-sample.truth_logit));
  sample.label =
      RandomStream(options_.seed, "clicks/labels").uniform(index) < probability ? 1.0f : 0.0f;
  return sample;
}

double Clicks::weight(int64_t field, int64_t id) const {
  const auto stream = RandomStream(options_.seed, "clicks/weights", static_cast<uint64_t>(field));
  return options_.signal / std::sqrt(static_cast<double>(options_.fields)) *
         stream.normal(static_cast<uint64_t>(id));
}

}  // namespace trireme
