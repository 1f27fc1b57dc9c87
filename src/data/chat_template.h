// A conversation as the text that a chat model reads, by the Jinja template that came with its
// tokenizer: what transformers' apply_chat_template(…, tokenize=False) gives.
//
// Templates are programs that somebody else wrote. They run in Jinja's sandbox, in a Python process
// with bounded memory and time.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

namespace fs = std::filesystem;

class PythonWorker;

class ChatTemplate {
 public:
  // What `directory`, in Hugging Face's layout, says: chat_template.jinja and
  // additional_chat_templates/NAME.jinja, or else the "chat_template" of tokenizer_config.json, one
  // text or a list of named ones; and the special tokens that templates know by names such as
  // bos_token. nullopt if there is no template. InputError for files that cannot be understood.
  static std::optional<ChatTemplate> load(const fs::path& directory);

  struct Options {
    bool add_generation_prompt = false;  // the header of an answer at the end, for it to follow
    // Which one, if there are several; empty: "tool_use" for a conversation with tools, else
    // "default", where there are such.
    std::string name;
  };

  // `conversation` has "messages", a list of objects with a "role", and perhaps "tools" and
  // "documents", lists of objects, and "chat_template_kwargs", an object of further variables.
  // Other keys are passed over; the order of keys is kept, as templates print objects. InputError
  // that begins with `where` if it is none, or if the template refuses it or fails.
  //
  // The text has no tokens added: templates print what begins a text, so it is to be encoded
  // without. Any thread, one at a time. Cost: 0.2 s for the first, then about 0.1 ms.
  std::string render(const nlohmann::ordered_json& conversation, const Options& options,
                     std::string_view where) const;

 private:
  ChatTemplate() = default;
  const std::string& choose(bool with_tools, const std::string& name) const;

  std::string origin_;
  std::map<std::string, std::string> templates_;  // by name; "default" where there is but one
  nlohmann::ordered_json special_tokens_;
  std::shared_ptr<PythonWorker> worker_;
};

}  // namespace trireme
