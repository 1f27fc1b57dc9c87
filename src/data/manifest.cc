#include "data/manifest.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"

namespace trireme {

const char* name_of(Split split) { return split == Split::train ? "train" : "held_out"; }

// Found by nlohmann's to_json and from_json machinery, member by member; a missing member throws.
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CorpusSource, path, origin, licence, field, part, other_kinds,
                                   twice, binary, encoding, empty)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CorpusFile, name, source, xxh128, bytes, tokens, documents,
                                   held_out_documents, left_out_documents)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CorpusStream, first_token, tokens, first_document, documents,
                                   text_bytes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CorpusManifest::Stored, name, bytes, crc32c)

namespace {

using json = nlohmann::json;

constexpr const char* kFormat = "trireme-corpus";
constexpr int kVersion = 2;

void check_streams(const CorpusManifest& m, std::string_view origin) {
  uint64_t tokens = 0, documents = 0;
  for (const CorpusStream& stream : m.streams) {
    TRIREME_CHECK(stream.first_token == tokens && stream.first_document == documents, origin,
                  ": the streams do not lie behind one another");
    TRIREME_CHECK(!__builtin_add_overflow(tokens, stream.tokens, &tokens) &&
                      !__builtin_add_overflow(documents, stream.documents, &documents),
                  origin, ": a stream has no possible length");
  }
}

void check(const CorpusManifest& m, std::string_view origin) {
  TRIREME_CHECK(m.vocab > 0 && m.vocab <= INT32_MAX, origin, ": no possible vocab: ", m.vocab);
  TRIREME_CHECK(m.end_of_text >= 0 && m.end_of_text < m.vocab, origin,
                ": end_of_text is no id: ", m.end_of_text);
  TRIREME_CHECK(!m.begin_of_text || (*m.begin_of_text >= 0 && *m.begin_of_text < m.vocab), origin,
                ": begin_of_text is no id: ", m.begin_of_text.value_or(0));
  TRIREME_CHECK(m.token_bytes == (m.vocab <= 65536 ? 2 : 4), origin, ": ids of ", m.token_bytes,
                " bytes do not go with a vocab of ", m.vocab);
  TRIREME_CHECK(!m.streams.empty() && m.streams.size() % 2 == 0, origin,
                ": expected two streams for each part, got ", m.streams.size());
  check_streams(m, origin);
  for (const CorpusSource& source : m.sources)
    TRIREME_CHECK(source.part < m.streams.size() / 2, origin, ": a source has no part");
  for (const CorpusFile& file : m.files)
    TRIREME_CHECK(file.source < m.sources.size(), origin, ": a file has no source");
}

}  // namespace

std::string to_json(const CorpusManifest& m) {
  const json document = {{"format", kFormat},
                         {"version", kVersion},
                         {"id", m.id},
                         {"held_out", m.held_out},
                         {"tokenizer", m.tokenizer},
                         {"fingerprint", m.fingerprint},
                         {"vocab", m.vocab},
                         {"end_of_text", m.end_of_text},
                         {"token_bytes", m.token_bytes},
                         {"begin_of_text", m.begin_of_text ? json(*m.begin_of_text) : json()},
                         {"streams", m.streams},
                         {"sources", m.sources},
                         {"stored", m.stored},
                         {"files", m.files}};
  // Names of files need not be UTF-8.
  return document.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

CorpusManifest parse_manifest(std::string_view text, std::string_view origin) {
  CorpusManifest m;
  try {
    const json document = parse_json<json>(text, origin);
    TRIREME_CHECK(document.is_object() && document.value("format", "") == kFormat, origin,
                  ": this is no manifest of a corpus");
    const json& version = document.at("version");
    TRIREME_CHECK(version.is_number_integer() && version == kVersion, origin,
                  ": the corpus has format version ", version.dump().substr(0, 20),
                  ", this build reads ", kVersion, "\nnext: build it again");
    document.at("id").get_to(m.id);
    document.at("held_out").get_to(m.held_out);
    document.at("tokenizer").get_to(m.tokenizer);
    document.at("fingerprint").get_to(m.fingerprint);
    document.at("vocab").get_to(m.vocab);
    if (const json& begin = document.at("begin_of_text"); !begin.is_null())
      m.begin_of_text = begin.get<int64_t>();
    document.at("end_of_text").get_to(m.end_of_text);
    document.at("token_bytes").get_to(m.token_bytes);
    document.at("streams").get_to(m.streams);
    document.at("sources").get_to(m.sources);
    document.at("stored").get_to(m.stored);
    document.at("files").get_to(m.files);
  } catch (const json::exception& error) {
    throw InputError(concat(origin, ": the manifest is damaged: ", error.what(),
                            "\nnext: delete the directory and build the corpus again"));
  }
  check(m, origin);
  return m;
}

}  // namespace trireme
