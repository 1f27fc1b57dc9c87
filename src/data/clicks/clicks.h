// Generated clicks with a planted truth: a log of any length, each row a function of its number.
//
// A row has one id in each field, Zipf-like: id k of n has a share in proportion to 1 / (k + 1),
// drawn by inverting the continuous form, k + 1 = floor((n + 1)^u) with u uniform. Each (field, id)
// has a planted weight, N(0, 1) scaled so that the sum over fields has the variance of `signal`^2;
// a click has the probability sigmoid(bias + sum). So the best possible predictor is known. Any
// thread; O(fields) a row.
#pragma once

#include <cstdint>
#include <vector>

namespace trireme {

struct ClickOptions {
  int64_t fields = 8;
  int64_t ids = 1000;  // distinct ids of a field
  uint64_t seed = 1;
  double bias = -1;     // of the logit
  double signal = 1.2;  // standard deviation of the sum of weights over rare ids
};

struct ClickSample {
  std::vector<int64_t> ids;  // one a field, in [0, options.ids)
  float label = 0;           // 0 or 1
  double truth_logit = 0;
};

class Clicks {
 public:
  explicit Clicks(ClickOptions options);  // InputError unless fields and ids are positive
  ClickSample click(uint64_t index) const;
  double weight(int64_t field, int64_t id) const;  // the planted one

 private:
  ClickOptions options_;
};

}  // namespace trireme
