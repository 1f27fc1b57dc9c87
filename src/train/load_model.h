// A trained language model, ready to generate and score: from a run, a checkpoint or a Hugging Face
// directory.
#pragma once

#include <memory>
#include <string>

#include "data/tokenizer/tokenizer.h"
#include "engine/lanes.h"
#include "engine/parameters.h"
#include "model/language_model.h"

namespace trireme {

struct LoadedModel {
  std::string origin;  // where it was read from
  std::unique_ptr<LanguageModel> family;
  std::optional<Tokenizer> tokenizer;  // absent where the directory has none
  Model model;
  std::unique_ptr<Lanes> lanes;
  std::unique_ptr<Parameters> parameters;
  int32_t end_token = -1;  // the tokenizer's end of text, else the config's; -1: none
};

// `path` is what open_tensors() takes, or the name of a run below runs/. `sequence` is the longest
// text; 0 takes the model's own. InputError names what is missing.
LoadedModel load_model(const std::string& path, int64_t sequence, int threads, bool fp64 = false);

}  // namespace trireme
