#include "data/inspect.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log.h"
#include "data/utf8.h"

namespace trireme {
namespace {

using json = nlohmann::ordered_json;

// The document of a place in a stream.
const DocumentRecord& document_at(std::span<const DocumentRecord> documents, uint64_t token) {
  const auto after = std::ranges::upper_bound(documents, token, {}, &DocumentRecord::first_token);
  TRIREME_CHECK(after != documents.begin(), "data: the corpus is damaged: token ", token,
                " is in no document");
  return *(after - 1);
}

// Nothing that a terminal would take for a command.
std::string visible(std::string_view bytes) {
  std::string text;
  for (const char c : replace_invalid_utf8(bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool after_c2 = !text.empty() && text.back() == '\xC2';
    if (c == '\n' || c == '\t') text += c;
    else if (byte < 0x20) text += concat("\xE2\x90", static_cast<char>(0x80 + byte));  // U+2400 + c
    else if (byte == 0x7F) text += "\xE2\x90\xA1";                                     // U+2421
    else if (after_c2 && byte < 0xA0) text.back() = '\xEF', text += "\xBF\xBD";        // C1
    else text += c;
  }
  return text;
}

std::string name_of(const SampleSegment& segment) {
  return segment.line == 0 ? segment.file->name : concat(segment.file->name, ":", segment.line);
}

json json_of(const CorpusStream& stream) {
  return {{"documents", stream.documents},
          {"text_bytes", stream.text_bytes},
          {"tokens", stream.tokens}};
}

CorpusStream sum_of(const Corpus& corpus, Split split) {
  CorpusStream sum;
  for (uint64_t part = 0; part < corpus.parts(); ++part) {
    sum.documents += corpus.stream(part, split).documents;
    sum.tokens += corpus.stream(part, split).tokens;
    sum.text_bytes += corpus.stream(part, split).text_bytes;
  }
  return sum;
}

std::string line_of(Split split, const CorpusStream& stream) {
  char text[160];
  const double ratio = stream.tokens == 0 ? 0
                                          : static_cast<double>(stream.text_bytes) /
                                                static_cast<double>(stream.tokens);
  std::snprintf(text, sizeof text, "%-10s %14s %12s %16s %12.2f\n",
                split == Split::train ? "train" : "held out",
                format_count(stream.documents).c_str(), format_bytes(stream.text_bytes).c_str(),
                format_count(stream.tokens).c_str(), ratio);
  return text;
}

struct FileSums {
  uint64_t files = 0, bytes = 0;
};
FileSums files_of(const CorpusManifest& manifest, uint64_t source) {
  FileSums sums;
  for (const CorpusFile& file : manifest.files)
    if (file.source == source) ++sums.files, sums.bytes += file.bytes;
  return sums;
}

std::string source_text(const CorpusManifest& manifest, uint64_t index) {
  const CorpusSource& source = manifest.sources[index];
  const FileSums sums = files_of(manifest, index);
  std::string left_out;
  const auto add = [&](uint64_t count, const char* what) {
    if (count > 0) left_out += concat(left_out.empty() ? "" : ", ", format_count(count), " ", what);
  };
  add(source.other_kinds, "of other kinds");
  add(source.twice, "that another source has");
  add(source.binary, "binary");
  add(source.encoding, "not UTF-8");
  add(source.empty, "empty");
  return concat("\nsource     ", visible(source.path), "\n  from     ", visible(source.origin),
                "\n  licence  ", source.licence.empty() ? "not known" : source.licence,
                "\n  files    ", format_count(sums.files), ", ", format_bytes(sums.bytes), "\n",
                left_out.empty() ? "" : concat("  left out ", left_out, "\n"));
}

}  // namespace

SampleView view_sample(const Corpus& corpus, const TextSamples& samples, const Tokenizer& tokenizer,
                       uint64_t index) {
  const Split split = samples.options().split;
  TRIREME_CHECK(split == Split::train || index < samples.samples_per_epoch(),
                "data inspect: ", trireme::name_of(split), " has the samples 0 to ",
                samples.samples_per_epoch() - 1, ", got ", index);
  SampleView view{index, split, samples.place(index), samples.sample(index), {}};
  const auto documents = corpus.documents(view.place.part, split);
  const uint64_t ring = corpus.stream(view.place.part, split).tokens;
  uint64_t at = (view.place.start + ring - 1) % ring;
  for (int64_t t = 0; t < view.place.labels; ++t, at = (at + 1) % ring) {
    const DocumentRecord& document = document_at(documents, at);
    const uint64_t token = at - document.first_token;
    TRIREME_CHECK(document.file < corpus.manifest().files.size() && token < document.tokens,
                  "data: the corpus is damaged: document ", &document - documents.data(),
                  " lies outside");
    if (t == 0 || token == 0)
      view.segments.push_back({&corpus.manifest().files[document.file], document.line, token,
                               document.tokens, t, t, "", false});
    SampleSegment& segment = view.segments.back();
    segment.end = t + 1;
    segment.ends = token + 1 == document.tokens;
  }
  const std::span<const int32_t> inputs = view.sample.tokens;
  for (SampleSegment& segment : view.segments) {
    const auto count = static_cast<size_t>(segment.end - segment.begin - segment.ends);
    segment.text = tokenizer.decode(inputs.subspan(static_cast<size_t>(segment.begin), count));
  }
  return view;
}

std::string sample_text(const SampleView& view, bool color) {
  const auto rule = [&](const std::string& text) {
    return concat(color ? "\033[36m" : "", "──── ", text, color ? "\033[0m" : "", "\n");
  };
  std::string text = rule(concat("sample ", view.index, " of ", trireme::name_of(view.split),
                                 ": epoch ", view.place.epoch, ", window ", view.place.window, "; ",
                                 view.sample.tokens.size(), " tokens, ", view.sample.valid,
                                 " labels for ", view.sample.label_bytes, " bytes"));
  for (const SampleSegment& segment : view.segments) {
    text += rule(concat(visible(name_of(segment)), " · tokens ", segment.first_token + 1, " to ",
                        segment.first_token + static_cast<uint64_t>(segment.end - segment.begin),
                        " of ", segment.document_tokens));
    const std::string shown = visible(segment.text);
    text += shown;
    if (!shown.empty() && shown.back() != '\n') text += '\n';
    if (segment.ends) text += rule("end of text");
  }
  if (const auto padding = static_cast<int64_t>(view.sample.tokens.size()) - view.place.labels)
    text += rule(concat(padding, " places of padding"));
  return text;
}

std::string sample_json(const SampleView& view, bool indented) {
  json segments = json::array();
  for (const SampleSegment& segment : view.segments)
    segments.push_back({{"file", replace_invalid_utf8(segment.file->name)},
                        {"line", segment.line},
                        {"begin", segment.begin},
                        {"end", segment.end},
                        {"first_token", segment.first_token},
                        {"document_tokens", segment.document_tokens},
                        {"ends", segment.ends},
                        {"text", replace_invalid_utf8(segment.text)}});
  const json object = {{"index", view.index},
                       {"split", trireme::name_of(view.split)},
                       {"part", view.place.part},
                       {"epoch", view.place.epoch},
                       {"window", view.place.window},
                       {"start", view.place.start},
                       {"valid", view.sample.valid},
                       {"label_bytes", view.sample.label_bytes},
                       {"tokens", view.sample.tokens},
                       {"labels", view.sample.labels},
                       {"positions", view.sample.positions},
                       {"documents", view.sample.documents},
                       {"segments", segments}};
  return object.dump(indented ? 1 : -1) + "\n";
}

std::string corpus_text(const Corpus& corpus) {
  const CorpusManifest& m = corpus.manifest();
  char head[160];
  std::snprintf(head, sizeof head, "%-10s %14s %12s %16s %12s\n", "split", "documents", "text",
                "tokens", "bytes/token");
  std::string text =
      concat("corpus     ", corpus.directory().string(), "\ntokenizer  ", visible(m.tokenizer),
             "; ", format_count(static_cast<uint64_t>(m.vocab)), " ids, fingerprint ",
             m.fingerprint, "\n\n", head);
  for (const Split split : {Split::train, Split::held_out})
    text += line_of(split, sum_of(corpus, split));
  for (uint64_t s = 0; s < m.sources.size(); ++s) text += source_text(m, s);
  return text;
}

std::string corpus_json(const Corpus& corpus) {
  const CorpusManifest& m = corpus.manifest();
  json sources = json::array(), parts = json::array();
  for (uint64_t s = 0; s < m.sources.size(); ++s) {
    const CorpusSource& source = m.sources[s];
    const FileSums sums = files_of(m, s);
    sources.push_back({{"path", source.path},
                       {"origin", source.origin},
                       {"licence", source.licence.empty() ? json() : json(source.licence)},
                       {"field", source.field},
                       {"part", source.part},
                       {"files", sums.files},
                       {"bytes", sums.bytes},
                       {"left_out",
                        {{"other_kinds", source.other_kinds},
                         {"twice", source.twice},
                         {"binary", source.binary},
                         {"encoding", source.encoding},
                         {"empty", source.empty}}}});
  }
  for (uint64_t part = 0; part < corpus.parts(); ++part)
    parts.push_back({{"train", json_of(corpus.stream(part, Split::train))},
                     {"held_out", json_of(corpus.stream(part, Split::held_out))}});
  const json object = {{"directory", corpus.directory().string()},
                       {"id", m.id},
                       {"tokenizer", m.tokenizer},
                       {"fingerprint", m.fingerprint},
                       {"vocab", m.vocab},
                       {"begin_of_text", m.begin_of_text ? json(*m.begin_of_text) : json()},
                       {"end_of_text", m.end_of_text},
                       {"train", json_of(sum_of(corpus, Split::train))},
                       {"held_out", json_of(sum_of(corpus, Split::held_out))},
                       {"parts", parts},
                       {"sources", sources}};
  return object.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace trireme
