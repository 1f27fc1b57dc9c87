#include "model/rope_scaling.h"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme {
namespace {

using nlohmann::json;

RopeSpec read(const json& config, int64_t width, int64_t max_positions,
              const std::string& layer_type = "") {
  ConfigReader reader(config, "config.json", "llama");
  RopeSpec spec = read_rope(reader, width, max_positions, 1e4, layer_type);
  reader.finish();
  return spec;
}

std::string error_of(const json& config) {
  try {
    read(config, 8, 4096);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

// Values of the formulas in double precision, which transformers' tables reproduce to 3e-7.
TEST(RopeScaling, Llama3) {
  const json config = {{"rope_theta", 5e5},
                       {"rope_scaling",
                        {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}}}};
  const std::vector<double> f = frequencies_of(read(config, 128, 131072), 131072);
  const std::pair<size_t, double> values[] = {
      {28, 0.003211446},   {29, 0.0021665708},  {32, 0.00052484616}, {34, 0.00017850781},
      {35, 9.5562124e-05}, {36, 7.7846553e-05}, {63, 3.068926e-07}};
  for (const auto& [i, value] : values) EXPECT_NEAR(f[i] / value, 1, 1e-7) << i;
}

TEST(RopeScaling, Yarn) {
  const RopeSpec spec =
      read({{"rope_theta", 1e6},
            {"rope_scaling",
             {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32768}}}},
           128, 131072);
  const std::vector<double> f = frequencies_of(spec, 131072);
  EXPECT_NEAR(f[24] / 0.0053753215, 1, 1e-7);
  EXPECT_NEAR(f[32] / 0.00060294118, 1, 1e-7);
  EXPECT_NEAR(f[40] / 4.4456985e-05, 1, 1e-7);
  EXPECT_NEAR(spec.attention_factor, 1.13862944, 1e-8);

  const RopeSpec deep = read({{"rope_scaling",
                               {{"type", "yarn"},
                                {"factor", 40},
                                {"mscale", 1.0},
                                {"mscale_all_dim", 1.0},
                                {"original_max_position_embeddings", 4096}}}},
                             64, 163840);
  const std::vector<double> g = frequencies_of(deep, 163840);
  EXPECT_NEAR(g[16] / 0.0055, 1, 1e-9);
  EXPECT_NEAR(g[31] / 3.3338036e-06, 1, 1e-7);
  EXPECT_EQ(deep.attention_factor, 1);
}

TEST(RopeScaling, DynamicFollowsTheLength) {
  const RopeSpec spec =
      read({{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}}}}, 128, 4096);
  // The base is the inverse of f_i to the power of R / 2i.
  EXPECT_NEAR(std::pow(frequencies_of(spec, 8192)[1], -64.0), 30527.736749, 1e-5);
  EXPECT_NEAR(std::pow(frequencies_of(spec, 100)[1], -64.0), 1e4, 1e-8);
}

TEST(RopeScaling, TheLengthChoosesTheListOfLongrope) {
  const json config = {
      {"original_max_position_embeddings", 4096},
      {"rope_scaling",
       {{"rope_type", "longrope"}, {"short_factor", {1.0, 2.0}}, {"long_factor", {4.0, 8.0}}}}};
  const RopeSpec spec = read(config, 4, 131072);
  EXPECT_DOUBLE_EQ(frequencies_of(spec, 4096)[1], 0.01 / 2);
  EXPECT_DOUBLE_EQ(frequencies_of(spec, 4097)[1], 0.01 / 8);
  EXPECT_DOUBLE_EQ(spec.attention_factor, std::sqrt(1 + std::log(32.0) / std::log(4096.0)));
}

// The newer style holds the base too, perhaps for each type of layer.
TEST(RopeScaling, OldAndNewStyles) {
  const json linear = {{"rope_type", "linear"}, {"factor", 4.0}, {"rope_theta", 100.0}};
  EXPECT_DOUBLE_EQ(frequencies_of(read({{"rope_parameters", linear}}, 4, 64), 64)[1], 0.1 / 4);
  const json old = {{"rope_theta", 100.0}, {"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}};
  EXPECT_DOUBLE_EQ(frequencies_of(read(old, 4, 64), 64)[1], 0.1 / 4);
  const json typed = {{"rope_parameters",
                       {{"full_attention", linear},
                        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 25.0}}}}}};
  EXPECT_DOUBLE_EQ(frequencies_of(read(typed, 4, 64, "full_attention"), 64)[1], 0.1 / 4);
  EXPECT_DOUBLE_EQ(frequencies_of(read(typed, 4, 64, "sliding_attention"), 64)[1], 0.2);
}

TEST(RopeScaling, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(error_of({{"rope_scaling", {{"rope_type", "spiral"}}}}),
            "config.json: \"rope_scaling\": the RoPE type 'spiral' is not known; there is default, "
            "linear, dynamic, yarn, llama3, longrope");
  EXPECT_EQ(error_of({{"rope_scaling", {{"rope_type", "linear"}}}}),
            "config.json: \"rope_scaling\": \"factor\" is missing");
  EXPECT_EQ(
      error_of({{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}, {"beta_fast", 3.0}}}}),
      "config.json: \"rope_scaling\": \"beta_fast\" is not known to the family RoPE");
  EXPECT_EQ(error_of({{"rope_scaling", 3}}),
            "config.json: \"rope_scaling\" must be an object, got 3");
  EXPECT_EQ(
      error_of({{"rope_scaling",
                 {{"rope_type", "longrope"}, {"short_factor", {1.0}}, {"long_factor", {1}}}}}),
      "config.json: \"rope_scaling\": \"short_factor\" must be a list of 4 factors, got "
      "[1.0]");
}

}  // namespace
}  // namespace trireme
