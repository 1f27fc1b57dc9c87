// A trained language model from a run, a checkpoint or a Hugging Face directory: to go on with, to
// generate, to score.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/boundaries.h"
#include "data/corpus_build.h"
#include "data/tokenizer/tokenizer.h"
#include "engine/lanes.h"
#include "engine/parameters.h"
#include "model/language_model.h"
#include "state/checkpoint.h"

namespace trireme {

// What a directory holds, weights not yet read.
struct StoredModel {
  Checkpoint checkpoint;  // its weights have the family's names
  nlohmann::ordered_json config;
  std::unique_ptr<LanguageModel> family;
  std::optional<Tokenizer> tokenizer;  // absent where the directory has none

  std::string origin() const { return checkpoint.path().string(); }
  // Ends a text: generation_config.json's, else config.json's, else the tokenizer's end of text.
  std::vector<int32_t> end_tokens() const;
  // Around a text, by the tokenizer and its tokenizer_config.json. REQUIRES: tokenizer.
  Boundaries boundaries() const;
  // Begins a text: by the same files, else the tokenizer's end of text.
  std::optional<int32_t> start_token() const;

 private:
  std::optional<std::vector<int32_t>> configured_ids(const char* key) const;
};

// `path` is what open_tensors() takes, or the name of a run below runs/. `storage` outlives it.
//
// Names that files of the same model may have are understood: with or without the prefix of the
// base model, buffers that are computed, an output matrix stored beside the embedding that it is
// tied to (equal to the bit). InputError names what is missing, unexpected or of another shape:
// sizes in config.json that the files do not bear out never reach an allocation.
StoredModel open_model(Storage& storage, const std::string& path);

// Ready to compute with.
struct LoadedModel {
  std::string origin;  // where it was read from
  std::unique_ptr<LanguageModel> family;
  std::optional<Tokenizer> tokenizer;
  Model model;
  std::unique_ptr<Lanes> lanes;
  std::unique_ptr<Parameters> parameters;
  std::optional<int32_t> start_token;
  std::vector<int32_t> end_tokens;
  Boundaries boundaries;  // empty without a tokenizer

  // The ids of a text as the model is used to meet one: with its BOS, if it has one and the text
  // does not spell it itself. REQUIRES: tokenizer.
  std::vector<int32_t> encode(std::string_view text) const;
};

// `sequence` is the longest text; 0 takes the model's own. Stored weights of any float type become
// `dtype`, float or double.
LoadedModel load_model(const std::string& path, int64_t sequence, int threads,
                       at::ScalarType dtype = at::kFloat);

// The corpus of a recipe; without a tokenizer of its own it is encoded by that of model.from.
// Tokens around documents that the recipe does not name are those of boundaries_beside() the
// tokenizer.
CorpusOptions corpus_of(const Recipe& recipe);

// Fills in data.bos and data.eos. InputError: as corpus_of().
void derive_boundaries(Recipe& recipe);

}  // namespace trireme
