// Rotary positions as configurations describe them: a base, and one of the published ways to
// stretch it over longer texts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/config_reader.h"

namespace trireme {

struct RopeSpec {
  enum class Kind { plain, linear, dynamic, yarn, llama3, longrope };
  Kind kind = Kind::plain;
  double theta = 1e4;
  int64_t rotary_dim = 0;  // R, even
  double factor = 1;       // s
  int64_t trained = 0;     // L0: the length that the model was trained with before stretching
  double beta_fast = 32, beta_slow = 1;             // yarn
  bool truncate = true;                             // yarn
  double low_freq = 1, high_freq = 4;               // llama3
  std::vector<double> short_factors, long_factors;  // longrope; R / 2 each
  double attention_factor = 1;                      // of cos and sin; yarn and longrope
};

// From "rope_theta" with "rope_scaling" (which may say "type" for "rope_type"), or from
// "rope_parameters", which holds both, or both for each of `layer_type`. InputError for an unknown
// type and for a key that the type does not have.
RopeSpec read_rope(ConfigReader& config, int64_t rotary_dim, int64_t max_positions,
                   double default_theta = 1e4, const std::string& layer_type = "");

// Angle = position * frequency. For texts of at most `sequence` tokens: dynamic and longrope change
// with the length, and go by this one.
//
// Sources: Chen et al. 2306.15595 (linear); bloc97's NTK-aware scaling (dynamic); Peng et al.
// 2309.00071 (yarn); Llama 3.1's release (llama3); Ding et al. 2402.13753 (longrope).
std::vector<double> frequencies_of(const RopeSpec& spec, int64_t sequence);

}  // namespace trireme
