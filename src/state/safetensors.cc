#include "state/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;
constexpr std::string_view kMetadata = "__metadata__";
constexpr size_t kMaxDims = 64;
constexpr size_t kMaxNameBytes = 400;  // so that a message can hold it

// The header's grammar as a state machine over JSON events. Anything else ends it at once, so that
// deep or endless JSON costs nothing.
class HeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderParser(SafetensorsHeader& header) : header_(header) {}
  const std::string& problem() const { return problem_; }

  bool start_object(std::size_t) override {
    switch (state_) {
      case State::start:
        return go(State::names);
      case State::tensor_value:
        return begin_tensor(), go(State::fields);
      case State::metadata_value:
        return go(State::metadata_names);
      default:
        return unexpected("an object");
    }
  }

  bool key(string_t& key) override {
    switch (state_) {
      case State::names:
        if (key.size() > kMaxNameBytes) return fail("a tensor's name is too long");
        current_ = key;
        if (!names_.insert(key).second) return fail("it occurs twice");
        return go(key == kMetadata ? State::metadata_value : State::tensor_value);
      case State::metadata_names:
        metadata_key_ = key;
        if (header_.metadata.contains(key))
          return fail("metadata key " + key.substr(0, 40) + " occurs twice");
        return go(State::metadata_text);
      case State::fields:
        if (key == "dtype" && !has_dtype_) return go(State::dtype);
        if (key == "shape" && !has_shape_) return go(State::shape);
        if (key == "data_offsets" && !has_offsets_) return go(State::offsets);
        return fail("field " + key.substr(0, 40) + " is unknown or occurs twice");
      default:
        return unexpected("a key");
    }
  }

  bool end_object() override {
    switch (state_) {
      case State::names:
        return go(State::end);
      case State::metadata_names:
        return go(State::names);
      case State::fields:
        return end_tensor() && go(State::names);
      default:
        return unexpected("the end of an object");
    }
  }

  bool start_array(std::size_t) override {
    if (state_ == State::shape) return go(State::shape_numbers);
    if (state_ == State::offsets) return go(State::offset_numbers);
    return unexpected("an array");
  }

  bool end_array() override {
    if (state_ == State::shape_numbers) return has_shape_ = true, go(State::fields);
    if (state_ != State::offset_numbers) return unexpected("the end of an array");
    if (offsets_.size() != 2) return fail("data_offsets must have two numbers");
    return has_offsets_ = true, go(State::fields);
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return fail("a number is beyond 63 bits");
    const auto number = static_cast<int64_t>(value);
    if (state_ == State::shape_numbers && entry_.shape.size() < kMaxDims)
      return entry_.shape.push_back(number), true;
    if (state_ == State::offset_numbers && offsets_.size() < 2)
      return offsets_.push_back(number), true;
    return unexpected("a number");
  }

  bool string(string_t& text) override {
    if (state_ == State::metadata_text) {
      header_.metadata[metadata_key_] = text;
      return go(State::metadata_names);
    }
    if (state_ != State::dtype) return unexpected("a string");
    // parse_dtype() knows our own spelling too; a file must have the format's.
    const auto dtype = parse_dtype(text);
    if (!dtype || safetensors_name(*dtype) != text)
      return fail("dtype " + text.substr(0, 40) + " is not supported");
    entry_.dtype = *dtype;
    has_dtype_ = true;
    return go(State::fields);
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
  bool binary(binary_t&) override { return unexpected("binary data"); }
  bool parse_error(std::size_t at, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem_ = concat("the header is no JSON at its byte ", at);
    return false;
  }

 private:
  enum class State {
    start,
    names,
    tensor_value,
    fields,
    dtype,
    shape,
    shape_numbers,
    offsets,
    offset_numbers,
    metadata_value,
    metadata_names,
    metadata_text,
    end
  };

  bool go(State next) { return state_ = next, true; }
  bool fail(const std::string& what) {
    problem_ = current_.empty() ? what : concat("tensor ", current_, ": ", what);
    return false;
  }
  bool unexpected(const char* what) {
    return fail(concat("the header has ", what, " out of place"));
  }

  void begin_tensor() {
    entry_ = {};
    entry_.name = current_;
    offsets_.clear();
    has_dtype_ = has_shape_ = has_offsets_ = false;
  }

  bool end_tensor() {
    if (!has_dtype_ || !has_shape_ || !has_offsets_)
      return fail("it needs dtype, shape and data_offsets");
    int64_t nbytes = 0;
    try {
      nbytes = entry_.nbytes();
    } catch (const InputError& error) {
      return fail(error.what());
    }
    if (offsets_[0] > offsets_[1] || offsets_[1] - offsets_[0] != nbytes)
      return fail(concat("shape ", to_string(entry_.shape), " of ", name_of(entry_.dtype),
                         " takes ", nbytes, " bytes, data_offsets span ", offsets_[0], " to ",
                         offsets_[1]));
    entry_.offset = offsets_[0];
    header_.entries.push_back(entry_);
    return true;
  }

  SafetensorsHeader& header_;
  State state_ = State::start;
  std::string problem_, current_, metadata_key_;
  std::set<std::string> names_;
  SafetensorsEntry entry_;
  std::vector<int64_t> offsets_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
};

// The reason why the entries do not tile [0, data_bytes), or "".
std::string tiling_problem(const std::vector<SafetensorsEntry>& entries, int64_t data_bytes) {
  int64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offset != end)
      return concat("tensor ", entry.name, " begins at ", entry.offset, ", the one before ends at ",
                    end);
    end += entry.nbytes();  // at most the file's end, or the next comparison fails
    if (end > data_bytes)
      return concat("tensor ", entry.name, " ends at ", end, ", the data at ", data_bytes);
  }
  if (end != data_bytes)
    return concat("the tensors take ", end, " bytes, the file has ", data_bytes, " for them");
  return "";
}

}  // namespace

SafetensorsHeader read_safetensors_header(const ReadFile& file, std::string_view name) {
  const auto fail = [&](const std::string& what) {
    throw InputError(concat("cannot read ", name, " as safetensors: ", what,
                            "\nnext: if it was downloaded or copied, fetch it again"));
  };
  unsigned char length[8];
  if (file.bytes() < 8 || file.read(0, std::as_writable_bytes(std::span(length))) != 8)
    fail(concat("it has ", file.bytes(), " bytes, a header takes at least 10"));
  uint64_t header_bytes = 0;
  for (int i = 7; i >= 0; --i) header_bytes = header_bytes << 8 | length[i];
  if (header_bytes < 2 || header_bytes > kMaxSafetensorsHeaderBytes ||
      header_bytes > static_cast<uint64_t>(file.bytes() - 8))
    fail(concat("its header claims ", header_bytes, " bytes, the file has ", file.bytes(),
                " and the limit is ", kMaxSafetensorsHeaderBytes));

  std::string text(header_bytes, '\0');
  if (file.read(8, std::as_writable_bytes(std::span(text))) != static_cast<int64_t>(text.size()))
    fail("it ended while its header was being read");
  if (text[0] != '{') fail("its header does not begin with {");
  SafetensorsHeader header;
  header.bytes = 8 + static_cast<int64_t>(header_bytes);
  HeaderParser parser(header);
  if (!nlohmann::json::sax_parse(text, &parser)) fail(parser.problem());

  std::ranges::stable_sort(header.entries, [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.nbytes()) < std::pair(b.offset, b.nbytes());
  });
  if (const auto problem = tiling_problem(header.entries, file.bytes() - header.bytes);
      !problem.empty())
    fail(problem);
  for (SafetensorsEntry& entry : header.entries) entry.offset += header.bytes;
  return header;
}

std::string safetensors_head(std::vector<SafetensorsEntry>& entries) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::set<std::string_view> names;
  int64_t end = 0;
  for (SafetensorsEntry& entry : entries) {
    TRIREME_CHECK(names.insert(entry.name).second && entry.name != kMetadata,
                  "two tensors of one file are called ", entry.name);
    entry.offset = end;
    end += entry.nbytes();
    const Json facts = {{"dtype", safetensors_name(entry.dtype)},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.offset, end}}};
    try {
      text += "," + Json(entry.name).dump() + ":" + facts.dump();
    } catch (const nlohmann::json::exception&) {
      throw InputError("a tensor's name is not UTF-8, as safetensors requires");
    }
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');
  TRIREME_CHECK(static_cast<int64_t>(text.size()) <= kMaxSafetensorsHeaderBytes, "the header of ",
                entries.size(), " tensors exceeds safetensors' limit of 100 MB");
  std::string head(8, '\0');
  for (int i = 0; i < 8; ++i)
    head[static_cast<size_t>(i)] = static_cast<char>(text.size() >> 8 * i);
  head += text;
  for (SafetensorsEntry& entry : entries) entry.offset += static_cast<int64_t>(head.size());
  return head;
}

}  // namespace trireme
