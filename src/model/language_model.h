// What tasks, generation and converters need to know of a family of language models.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/recipe/recipe.h"
#include "nn/model.h"

namespace trireme {

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  // The blocks, for sequences of at most `sequence` tokens, for which the tables of RoPE are made;
  // costs are of a whole sequence. InputError for more than 2^24. Batch:
  // "tokens" int64 [T]; "positions" int32 [T]; "documents" int32 [B, S], absent for one document a
  // sequence; "labels" int64 [T] for losses.
  virtual Model build(at::ScalarType dtype, int64_t sequence) const = 0;

  virtual nlohmann::json config() const = 0;  // Hugging Face's config.json
  virtual int64_t vocab() const = 0;
  virtual int64_t max_positions() const = 0;

  // An empty cache for `batch` sequences of at most `capacity` tokens.
  virtual GenerationCache make_cache(at::ScalarType dtype, int64_t batch,
                                     int64_t capacity) const = 0;

  // Training FLOPs a token by the stated convention: 6 a matmul parameter, and causal attention
  // (half of the square). Source: PaLM, arXiv 2204.02311, appendix B, with the causal half.
  virtual double training_flops_per_token(int64_t sequence) const = 0;

  // What a person wants to see of it, such as ("layers", "6").
  virtual std::vector<std::pair<std::string, std::string>> summary() const = 0;
};

// By `model.family`, with a vocabulary of `vocab` ids. InputError naming the recipe's line.
std::unique_ptr<LanguageModel> make_language_model(const Recipe& recipe, int64_t vocab);

// By `model_type` of a config.json. InputError for an unknown family, or a key that would change
// the model and that the family does not read; `origin` is for messages.
std::unique_ptr<LanguageModel> load_language_model(const nlohmann::json& config,
                                                   const std::string& origin);

}  // namespace trireme
