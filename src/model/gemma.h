// Gemma 2 and Gemma 3 (its text model): norms before and after each part, whose weights are held
// less one; GeGLU; a scaled embedding; local and global layers.
#pragma once

#include "model/decoder.h"

namespace trireme {

DecoderSpec read_gemma2(ConfigReader& config);
DecoderSpec read_gemma3(ConfigReader& config);

}  // namespace trireme
