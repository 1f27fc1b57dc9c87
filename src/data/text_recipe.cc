#include "data/text_recipe.h"

#include "base/error.h"

namespace trireme {

CorpusOptions corpus_options(const Recipe& recipe) {
  CorpusOptions options;
  for (const Record& entry : recipe.records("data.source")) {
    SourceOptions& source = options.sources.emplace_back();
    source.path = entry.text("path");
    source.field = entry.has("field") ? entry.text("field") : recipe.text("data.field");
    if (entry.has("weight")) source.weight = entry.number("weight");
  }
  if (recipe.has("data.tokenizer")) options.tokenizer = recipe.text("data.tokenizer");
  else if (recipe.has("data.tokenizer.train"))
    options.train_vocab = recipe.integer("data.tokenizer.vocab");
  if (recipe.has("data.bos") && recipe.text("data.bos") != kNoToken)
    options.begin_of_text = recipe.text("data.bos");
  if (recipe.has("data.eos")) options.end_of_text = recipe.text("data.eos");
  options.held_out = recipe.number("data.held_out");
  options.cache = recipe.text("data.cache");
  options.threads = static_cast<int>(recipe.integer("run.threads"));
  return options;
}

TextSampleOptions sample_options(const Recipe& recipe, Split split) {
  TextSampleOptions options;
  options.sequence = recipe.integer("data.sequence");
  options.seed = static_cast<uint64_t>(recipe.integer("run.seed"));
  options.split = split;
  options.document_attention = recipe.flag("data.document_attention");
  options.document_positions = recipe.flag("data.document_positions");
  for (const Record& entry : recipe.records("data.source"))
    if (entry.has("weight")) options.weights.push_back(entry.number("weight"));
  return options;
}

}  // namespace trireme
