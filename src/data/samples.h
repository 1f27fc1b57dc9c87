// The sample function of a text corpus: sample(index) is computed from (corpus, options, index)
// alone.
//
// It knows neither ranks nor batch size: a trainer that has consumed n samples goes on with sample
// n, whatever its world and batch were before.
//
// The rule. A stream of T tokens is a ring: its last token, an end-of-text, stands before its
// first. An epoch cuts the ring, from an offset of its own, into ceil(T / S) windows of S inputs,
// of which the last may be shorter; the label of an input is the token behind it. So each token of
// the stream is the label of one place in each epoch. The windows of epoch e are taken in the order
// of Permutation(windows, seed, "data/windows/<part>", e). A short window is filled up with
// end-of-text tokens that have no label and count to its last document.
//
// Where documents begin with a begin-of-text token, a window that begins inside a document has that
// token in place of its first input: a model that never met a text without it is not asked to.
//
// With document_attention the end-of-text token of a document has no label either: the first token
// of a document is predicted from nothing, so it is the one token that is never a label.
//
// A blend of parts has a period of P places, in which part k has c_k places in proportion to its
// weight, spread so that after any number of places each part has had its share to within one
// sample (blend.h); each part goes through epochs of its own.
//
// The held-out split is not shuffled: part by part, window by window, once.
//
// Shapes: S sequence. Threads: any. Cost of a sample: O(S).
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/blend.h"
#include "data/corpus.h"

namespace trireme {

// Labels with this value are no part of the loss (PyTorch's ignore_index).
inline constexpr int32_t kNoLabel = -100;

struct TextSample {
  std::vector<int32_t> tokens;     // [S] inputs
  std::vector<int32_t> labels;     // [S] the next token, or kNoLabel
  std::vector<int32_t> positions;  // [S] 0 … S - 1, or restarting at 0 with every document
  std::vector<int32_t> documents;  // [S] 0, 0, …, 1, 1, …: attention stays within one; or all 0
  int64_t valid = 0;               // labels that are not kNoLabel; may be 0 in a short window
  int64_t label_bytes = 0;  // of the text that these labels stand for: bits per byte is the sum
                            // of their losses in nats / (ln 2 * label_bytes)
};

struct TextSampleOptions {
  int64_t sequence = 0;
  uint64_t seed = 0;
  Split split = Split::train;
  bool document_attention = true;  // documents are numbered; no label across a boundary
  bool document_positions =
      true;                     // positions restart; a document cut by a window starts at 0 again
  std::vector<double> weights;  // of the corpus's parts; may be empty when there is one
};

class TextSamples {
 public:
  // Where a sample comes from.
  struct Place {
    uint64_t part, epoch;
    uint64_t window;  // in the epoch's cut
    uint64_t start;   // of the first label, in the stream
    int64_t labels;   // places with a token behind them: S, or less in a short window
  };

  // The corpus outlives this and stays where it is. InputError: the split is empty, or a part of
  // the train split is shorter than one sample.
  TextSamples(const Corpus& corpus, TextSampleOptions options);

  // REQUIRES, in the held-out split: index < samples_per_epoch(). In the train split any index
  // goes. InputError when the corpus turns out to be damaged.
  TextSample sample(uint64_t index) const;
  Place place(uint64_t index) const;

  // The windows of a part in the held-out split, as numbers of samples.
  std::pair<uint64_t, uint64_t> range_of(uint64_t part) const {
    return {windows_before_[part], windows_before_[part + 1]};
  }
  // Windows of all parts together. Without a blend each is given once in so many samples.
  uint64_t samples_per_epoch() const { return windows_before_.back(); }
  const TextSampleOptions& options() const { return options_; }

 private:
  struct Part {
    TokenSpan tokens;
    std::string order_name, offset_name;  // of random numbers
  };
  uint64_t windows(uint64_t part) const {
    return windows_before_[part + 1] - windows_before_[part];
  }
  int32_t token(const Place& place, uint64_t at) const;

  const Corpus* corpus_;
  TextSampleOptions options_;
  Blend blend_;
  std::vector<Part> parts_;
  std::vector<uint64_t> windows_before_;  // running sum over parts, from 0
};

}  // namespace trireme
