// The tokens that stand before and after a text, as the tokenizer's own model met them.
//
// Before it: what transformers puts there. `add_bos_token` of tokenizer_config.json decides, and
// the token is its `bos_token`; where the file says nothing, Llama's and Gemma's tokenizer classes
// put their BOS, and any other what the post-processor of tokenizer.json begins with. GPT-2's and
// Qwen's kinds put none.
// After it: the end of text that the tokenizer is known to have (Tokenizer::end_of_text()), which
// is not always `eos_token`: that of a chat model ends a turn. Else `eos_token`.
//
// Threads: any.
#pragma once

#include <string>
#include <string_view>

#include "base/files.h"
#include "data/tokenizer/tokenizer.h"

namespace trireme {

struct Boundaries {
  std::string begin;  // as the tokenizer spells it; empty: none
  std::string end;    // empty: the tokenizer has none
};

// `config` is the text of tokenizer_config.json, empty where there is none; `origin` is what errors
// call it. InputError: no JSON, a member of another type, a token that the tokenizer lacks, a
// post-processor that begins with more than one token.
Boundaries boundaries_of(const Tokenizer& tokenizer, std::string_view config,
                         const std::string& origin);

// With the tokenizer_config.json that lies beside a tokenizer.json, if there is one.
Boundaries boundaries_beside(const Tokenizer& tokenizer, const fs::path& tokenizer_json);

}  // namespace trireme
