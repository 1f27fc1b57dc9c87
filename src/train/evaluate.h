// A trained language model's loss on texts.
#pragma once

#include <cstdint>
#include <numbers>
#include <string>
#include <vector>

namespace trireme {

struct TextScore {
  double nats = 0;
  int64_t tokens = 0;  // that were predicted: each document's, but for its first
  int64_t bytes = 0;   // of the text that these tokens stand for
  double loss() const { return nats / static_cast<double>(tokens); }
  double bits_per_byte() const { return nats / (std::numbers::ln2 * static_cast<double>(bytes)); }
};

// Every document of `sources` (as data.source names them) once, cut into windows of `sequence`
// tokens; attention stays within a document. 0: the model's longest. InputError for whatever is
// wrong with model or texts.
TextScore evaluate_texts(const std::string& model, const std::vector<std::string>& sources,
                         int64_t sequence, int threads);

}  // namespace trireme
