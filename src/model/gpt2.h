// GPT-2: LayerNorm in front, learned positions, biases everywhere, tanh-GELU, weights [in, out].
#pragma once

#include "model/decoder.h"

namespace trireme {

DecoderSpec read_gpt2(ConfigReader& config);

}  // namespace trireme
