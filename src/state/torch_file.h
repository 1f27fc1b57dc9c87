// Files that torch.save() wrote, read by a Python process that unpickles tensors and nothing else.
#pragma once

#include <memory>

#include "state/storage.h"

namespace trireme {

class PythonWorker;

// One process for all files that are opened through it; it ends with the last of them.
class TorchFiles {
 public:
  TorchFiles();
  ~TorchFiles();

  // The safetensors file that would hold the same tensors, of the file's dictionary of tensors. Its
  // bytes come from the worker when they are read; torch maps the file where its format allows it.
  // InputError for what is damaged, hostile or no such dictionary.
  std::unique_ptr<ReadFile> open(const fs::path& path);

 private:
  std::shared_ptr<PythonWorker> worker_;
};

}  // namespace trireme
