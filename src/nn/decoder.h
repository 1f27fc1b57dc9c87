// The blocks of a decoder: token embedding, layers, head.
//
// Layers take (residual, delta) and give (residual, delta), so that each sum is fused with the norm
// behind it. Batch: "tokens" int64 [T]; "positions" int32 [T]; "documents" int32 [B, S]; "labels"
// int64 [T] for losses; "rows" int64 for logits of some tokens only. Costs are of one sequence.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "nn/parts.h"

namespace trireme {

struct EmbeddingSpec {
  std::string tokens;  // NAME.weight, [V, H]
  int64_t vocab = 0, hidden = 0;
  double scale = 1;
  double init_std = 0;
  struct Positions {
    std::string name;  // NAME.weight, [count, H], added
    int64_t count;
  };
  std::optional<Positions> positions;
};

// x + attention(norm(x)), then x + feed_forward(norm(x)); with post-norms, of what is added.
struct LayerSpec {
  std::string name;  // of the block
  NormSpec attention_norm;
  AttentionSpec attention;
  std::optional<NormSpec> attention_post_norm;
  NormSpec feed_forward_norm;
  FeedForwardSpec feed_forward;
  std::optional<NormSpec> feed_forward_post_norm;
};

struct HeadSpec {
  NormSpec norm;
  int64_t vocab = 0;
  std::optional<std::string> output;  // NAME.weight, [V, H]; nullopt: the token embedding's
  double init_std = 0;
  double softcap = 0;  // of the logits; 0: none
};

std::unique_ptr<Block> make_embedding(const EmbeddingSpec& spec, int64_t sequence);
// `first`: its inputs lack a delta.
std::unique_ptr<Block> make_layer(const LayerSpec& spec, int64_t sequence, bool first);
std::unique_ptr<Block> make_head(const HeadSpec& spec, int64_t sequence);

// Matmul parameters of a layer, whose FLOPs a token are twice as many.
int64_t matmul_parameters(const LayerSpec& spec);

}  // namespace trireme
