#include "train/load_model.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "state/hugging_face.h"
#include "train/run_directory.h"
#include "train/saving.h"

namespace trireme {

LoadedModel load_model(const std::string& path, int64_t sequence, int threads, bool fp64) {
  PosixStorage storage;
  const Checkpoint checkpoint =
      open_tensors(storage, fs::exists(path) ? fs::path(path) : find_run(path));
  LoadedModel loaded;
  loaded.origin = checkpoint.path().string();
  const std::vector<std::string> files = checkpoint.attachments();
  const auto has = [&](const char* name) { return std::ranges::find(files, name) != files.end(); };
  TRIREME_CHECK(has("config.json"), loaded.origin,
                " has no config.json, so it is no language model");
  const auto config = nlohmann::json::parse(checkpoint.attachment("config.json"), nullptr, false);
  TRIREME_CHECK(!config.is_discarded(), loaded.origin, "/config.json is not valid JSON");
  loaded.family = load_language_model(config, loaded.origin + "/config.json");
  if (has("tokenizer.json"))
    loaded.tokenizer.emplace(Tokenizer::parse(checkpoint.attachment("tokenizer.json"),
                                              loaded.origin + "/tokenizer.json"));
  if (loaded.tokenizer && loaded.tokenizer->end_of_text())
    loaded.end_token = *loaded.tokenizer->end_of_text();
  else if (const auto eos = config.find("eos_token_id");
           eos != config.end() && eos->is_number_integer())
    loaded.end_token = eos->get<int32_t>();

  const at::ScalarType dtype = fp64 ? at::kDouble : at::kFloat;
  loaded.model =
      loaded.family->build(dtype, sequence > 0 ? sequence : loaded.family->max_positions());
  loaded.lanes = std::make_unique<Lanes>(threads, false, nullptr);
  loaded.parameters = std::make_unique<Parameters>(loaded.model, dtype, Mesh(), 0, false, threads);
  load_checkpoint(checkpoint, loaded.model, {*loaded.parameters});
  return loaded;
}

}  // namespace trireme
