#include "data/samples.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"

namespace trireme {
namespace {

std::vector<double> weights_or_one(const std::vector<double>& weights) {
  return weights.empty() ? std::vector<double>{1} : weights;
}

}  // namespace

TextSamples::TextSamples(const Corpus& corpus, TextSampleOptions options)
    : corpus_(&corpus),
      options_(std::move(options)),
      blend_(weights_or_one(options_.weights)),
      windows_before_{0} {
  TRIREME_CHECK(options_.sequence > 0, "data.sequence: expected at least 1, got ",
                options_.sequence);
  TRIREME_CHECK(blend_.counts().size() == corpus.parts(), "data.source: ", options_.weights.size(),
                " weights, but the corpus has ", corpus.parts(), " parts");
  const auto sequence = static_cast<uint64_t>(options_.sequence);
  const bool train = options_.split == Split::train;
  for (uint64_t part = 0; part < corpus.parts(); ++part) {
    const TokenSpan stream = corpus.tokens(part, options_.split);
    TRIREME_CHECK(!train || stream.size() > sequence, "data.sequence: ",
                  corpus.parts() > 1 ? concat("part ", part, " of ") : std::string(), "the corpus ",
                  corpus.directory().string(), " has ", stream.size(),
                  " tokens to train on, and one sample takes ", sequence + 1,
                  "\nnext: shorten data.sequence, or add to data.source");
    parts_.push_back({stream, concat("data/windows/", part), concat("data/offset/", part)});
    windows_before_.push_back(windows_before_.back() + (stream.size() + sequence - 1) / sequence);
  }
  TRIREME_CHECK(samples_per_epoch() > 0, "data.held_out: nothing is held out in ",
                corpus.directory().string(), "\nnext: set data.held_out above 0");
}

TextSamples::Place TextSamples::place(uint64_t index) const {
  Place place{};
  uint64_t offset = 0;  // in the ring, of the label of the first window's first input
  if (options_.split == Split::train) {
    const Blend::Place drawn = blend_(index);
    const Part& part = parts_[drawn.source];
    const uint64_t count = windows(drawn.source);
    place.part = drawn.source;
    place.epoch = drawn.index / count;
    place.window =
        Permutation(count, options_.seed, part.order_name, place.epoch)(drawn.index % count);
    offset = RandomStream(options_.seed, part.offset_name).below(place.epoch, part.tokens.size());
  } else {
    TRIREME_ASSERT(index < samples_per_epoch(), "held-out sample ", index, " of ",
                   samples_per_epoch());
    const auto after = std::ranges::upper_bound(windows_before_, index);
    place.part = static_cast<uint64_t>(after - windows_before_.begin()) - 1;
    place.window = index - windows_before_[place.part];
  }
  const uint64_t tokens = parts_[place.part].tokens.size();
  const uint64_t from = place.window * static_cast<uint64_t>(options_.sequence);
  place.start = (offset + from) % tokens;
  place.labels =
      static_cast<int64_t>(std::min(tokens - from, static_cast<uint64_t>(options_.sequence)));
  return place;
}

int32_t TextSamples::token(const Place& place, uint64_t at) const {
  const int32_t token = parts_[place.part].tokens[at];
  TRIREME_CHECK(token >= 0 && token < corpus_->vocab(), "data: the corpus ",
                corpus_->directory().string(), " is damaged: token ", token, " at ", at,
                " of part ", place.part, " is no id below ", corpus_->vocab(),
                "\nnext: delete the directory and build the corpus again");
  return token;
}

TextSample TextSamples::sample(uint64_t index) const {
  const Place place = this->place(index);
  const auto sequence = static_cast<size_t>(options_.sequence);
  const auto labels = static_cast<size_t>(place.labels);
  const uint64_t ring = parts_[place.part].tokens.size();
  const int32_t end_of_text = corpus_->end_of_text();
  const std::optional<int32_t> begin_of_text = corpus_->begin_of_text();
  // The two tokens may be the same: then only one before another ends a document.
  const auto is_end = [&](int32_t token, int32_t next) {
    return token == end_of_text && (!begin_of_text || next == *begin_of_text);
  };
  const std::span<const uint32_t> bytes_by_token = corpus_->bytes_by_token();

  TextSample sample;
  sample.tokens.assign(sequence, end_of_text);
  sample.labels.assign(sequence, kNoLabel);
  sample.positions.resize(sequence);
  sample.documents.assign(sequence, 0);
  uint64_t at = place.start;  // of the label
  int32_t input = token(place, at == 0 ? ring - 1 : at - 1), document = 0, position = 0;
  const bool cut = begin_of_text && !is_end(input, token(place, at));
  if (cut) input = *begin_of_text;
  for (size_t t = 0; t < sequence; ++t) {
    sample.positions[t] = position++;
    if (options_.document_attention) sample.documents[t] = document;
    if (t >= labels) continue;
    const int32_t label = token(place, at);
    const bool ends = is_end(input, label) && !(cut && t == 0);
    sample.tokens[t] = input;
    if (!ends || !options_.document_attention) {
      sample.labels[t] = label;
      sample.label_bytes += bytes_by_token[static_cast<size_t>(label)];
      ++sample.valid;
    }
    document += ends;
    if (ends && options_.document_positions) position = 0;
    input = label;
    at = at + 1 == ring ? 0 : at + 1;
  }
  return sample;
}

}  // namespace trireme
