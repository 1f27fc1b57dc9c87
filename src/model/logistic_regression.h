// Logistic regression on ids: logit = bias + the sum of one weight an id.
#pragma once

#include <cstdint>

#include "nn/model.h"

namespace trireme {

// One block with the bias, reading the rows of the table "ids" (D = 1). Batch: "labels" [B] of 0
// and 1, "weights" [B] of samples. Loss: cross-entropy in nats, weighted; Want::logits gives
// "logits" [B].
Model make_logistic_regression(int64_t fields);

}  // namespace trireme
