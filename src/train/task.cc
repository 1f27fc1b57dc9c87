#include "train/task.h"

#include "base/error.h"

namespace trireme {

std::vector<SampleText> Task::write_samples(RunningModel) const { return {}; }
const Checkpoint* Task::start() const { return nullptr; }
std::unique_ptr<TableState> Task::make_tables() const { return nullptr; }

std::shared_ptr<const Task> make_task(const Recipe& recipe) {
  struct Kind {
    std::string_view name;
    std::unique_ptr<Task> (*make)(const Recipe&);
  };
  static constexpr Kind kKinds[] = {{"pretrain", make_pretrain_task}, {"ctr", make_ctr_task}};
  for (const Kind& kind : kKinds)
    if (kind.name == recipe.text("task")) return kind.make(recipe);
  throw InputError(
      concat(recipe.where("task"), ": the task '", recipe.text("task"), "' is not known"));
}

}  // namespace trireme
