// Files as damage and malice make them, for tests that nothing but a refusal comes of it.
//
// Byte-level: cut, flipped, inserted, removed and repeated bytes. Of JSON also structure-level: a
// value anywhere becomes another type, a huge or negative number, NaN, Infinity, a deep nest, a
// path out of the directory; a key is renamed, left out or comes twice. A mutation is a function of
// (seed, number).
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace trireme::testing {

class Mutator {
 public:
  Mutator(uint64_t seed, uint64_t number) : random_(seed * 1'000'003 + number) {}

  uint64_t below(uint64_t end) { return random_() % end; }

  std::string bytes(std::string text) {
    for (uint64_t times = 1 + below(3); times > 0; --times) change(text);
    return text;
  }

  // `text` is JSON, and mostly still is afterwards.
  std::string structure(const std::string& text) {
    using Json = nlohmann::ordered_json;
    Json document = Json::parse(text);
    std::vector<Json*> values = {&document};
    for (size_t i = 0; i < values.size(); ++i)
      for (Json& inner : *values[i])
        if (values[i]->is_structured()) values.push_back(&inner);
    Json& at = *values[below(values.size())];
    if (at.is_object() && !at.empty() && below(2)) {
      const std::string key = std::next(at.begin(), static_cast<int64_t>(below(at.size()))).key();
      const Json value = at[key];
      at.erase(key);
      if (below(3)) at[below(2) ? key + "x" : "@twice"] = value;
    } else if (at.is_array() && !at.empty() && below(2)) {
      if (below(2)) at.erase(below(at.size()));
      else at.push_back(at[below(at.size())]);
    } else {
      at = "@value";
    }
    std::string out = document.dump();
    replace(out, "\"@value\"", kValues[below(std::size(kValues))]);
    replace(out, "\"@twice\"", "\"same\":1,\"same\"");
    replace(out, "@deep", std::string(100'000, '['));
    replace(out, "@long", std::string(300'000, 'x'));
    return out;
  }

  std::string either(const std::string& json) { return below(3) ? structure(json) : bytes(json); }

 private:
  static constexpr const char* kValues[] = {"null",
                                            "true",
                                            "0",
                                            "-1",
                                            "1",
                                            "2",
                                            "3",
                                            "7",
                                            "1000000",
                                            "4294967296",
                                            "1048575",
                                            "16777215",
                                            "9223372036854775807",
                                            "9223372036854775808",
                                            "18446744073709551615",
                                            "-9223372036854775808",
                                            "1e308",
                                            "-1e-308",
                                            "1e999",
                                            "0.5",
                                            "NaN",
                                            "Infinity",
                                            "-Infinity",
                                            "[]",
                                            "{}",
                                            "[[]]",
                                            "[0,0]",
                                            "[-1]",
                                            "{\"a\":1,\"a\":2}",
                                            "\"\"",
                                            "\"../../etc/passwd\"",
                                            "\"/etc/passwd\"",
                                            "\"..\"",
                                            "\"\\u0000\"",
                                            "\"\\ud800\"",
                                            "\"\\n\\u001b[31m\"",
                                            "\"F64\"",
                                            "\"gpt2\"",
                                            "@deep",
                                            "\"@long\"",
                                            "[1e300,\"@long\"]"};

  static void replace(std::string& text, std::string_view from, const std::string& to) {
    if (const size_t at = text.find(from); at != text.npos) text.replace(at, from.size(), to);
  }

  void change(std::string& text) {
    const size_t size = text.size(), at = size ? below(size) : 0;
    const size_t n = size ? 1 + below(std::min<size_t>(size - at, 40)) : 0;
    switch (below(6)) {
      case 0:
        text.resize(at);
        break;
      case 1:
        if (size) text[at] = static_cast<char>(text[at] ^ 1 << below(8));
        break;
      case 2:
        if (size) text[at] = static_cast<char>(below(256));
        break;
      case 3:
        text.insert(at, std::string(1 + below(9), static_cast<char>(below(256))));
        break;
      case 4:
        text.erase(at, n);
        break;
      case 5:
        text.insert(at, text.substr(at, n));
        break;
    }
  }

  std::mt19937_64 random_;
};

// Runs read(mutator) for each number: it may succeed, or throw an Error of one to three short
// lines; anything else, and a peak of memory that grows by more than 400 MB, is a failure.
template <class Read>
void survive(uint64_t seed, uint64_t count, Read read) {
  const auto peak_bytes = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return int64_t{usage.ru_maxrss} * 1024;
  };
  const int64_t before = peak_bytes();
  uint64_t refused = 0;
  for (uint64_t number = 0; number < count && !::testing::Test::HasFailure(); ++number) {
    Mutator mutator(seed, number);
    try {
      read(mutator);
    } catch (const InternalError& error) {
      ADD_FAILURE() << "seed " << seed << " number " << number << ": " << error.what();
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_TRUE(what.size() > 0 && what.size() < 1500 && std::ranges::count(what, '\n') < 3)
          << "seed " << seed << " number " << number << ": " << what.substr(0, 3000);
      ++refused;
    } catch (const std::exception& error) {
      ADD_FAILURE() << "seed " << seed << " number " << number << ": " << error.what();
    }
    EXPECT_LT(peak_bytes() - before, 400 << 20) << "seed " << seed << " number " << number;
  }
  EXPECT_GT(refused, count / 4) << "mutations that harm nothing test nothing";
}

}  // namespace trireme::testing
