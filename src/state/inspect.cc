#include "state/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "state/convert.h"
#include "state/tensor_stream.h"

namespace trireme {
namespace {

constexpr int64_t kPiece = 1 << 16;  // elements: 512 kB of doubles, in the second-level cache
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The elements of a tensor as doubles, piece by piece.
class DoubleStream {
 public:
  DoubleStream(const Checkpoint& from, const TensorRecord& tensor)
      : stream_(from, tensor, tensor.dtype), dtype_(tensor.dtype) {}

  std::span<const double> next() {
    const int64_t n = std::min(kPiece, stream_.bytes_left() / bytes_of(dtype_));
    raw_.resize(static_cast<size_t>(n * bytes_of(dtype_)));
    values_.resize(static_cast<size_t>(n));
    stream_.read(raw_);
    to_doubles(dtype_, raw_, values_);
    return values_;
  }

  std::span<const std::byte> raw() const { return raw_; }  // of the last piece

 private:
  TensorStream stream_;
  DType dtype_;
  std::vector<std::byte> raw_;
  std::vector<double> values_;
};

// Count, mean and sum of squared deviations, merged exactly as of one set (Chan et al. 1979).
struct Moments {
  double n = 0, mean = 0, squares = 0;

  void merge(const Moments& other) {
    if (other.n == 0) return;
    const double total = n + other.n, delta = other.mean - mean;
    mean += delta * other.n / total;
    squares += other.squares + delta * delta * n * other.n / total;
    n = total;
  }
};

TensorDifference compare_values(const Checkpoint& a, const TensorRecord& in_a, const Checkpoint& b,
                                const TensorRecord& in_b) {
  TensorDifference difference{.name = in_a.name, .what = "", .a = "", .b = ""};
  difference.numel = numel_of(in_a.shape);
  DoubleStream stream_a(a, in_a), stream_b(b, in_b);
  double squares = 0, reference = 0;
  for (int64_t done = 0; done < difference.numel; done += kPiece) {
    const auto x = stream_a.next(), y = stream_b.next();
    for (size_t i = 0; i < x.size(); ++i) {
      reference += std::isfinite(y[i]) ? y[i] * y[i] : 0;
      const bool same = (x[i] == y[i] && std::signbit(x[i]) == std::signbit(y[i])) ||
                        (std::isnan(x[i]) && std::isnan(y[i]));
      if (same) continue;
      ++difference.differing;
      const double delta = std::abs(x[i] - y[i]);
      difference.max_abs = std::isfinite(delta) ? std::max(difference.max_abs, delta) : kInfinity;
      squares += delta * delta;
    }
    // int64 beyond 2^53 differ in bits that a double does not have.
    if (in_a.dtype == in_b.dtype && !is_floating(in_a.dtype) && difference.differing == 0 &&
        !std::ranges::equal(stream_a.raw(), stream_b.raw()))
      difference.differing = 1;
  }
  difference.relative = squares == 0 ? 0 : std::sqrt(squares / reference);
  if (difference.differing > 0) difference.what = "values";
  return difference;
}

}  // namespace

TensorStatistics statistics_of(const Checkpoint& checkpoint, const TensorRecord& tensor) {
  const int64_t numel = numel_of(tensor.shape);
  DoubleStream stream(checkpoint, tensor);
  Moments all;
  double min = kInfinity, max = -kInfinity;
  for (int64_t done = 0; done < numel; done += kPiece) {
    const auto values = stream.next();
    Moments piece;
    for (double x : values)
      if (std::isfinite(x)) {
        piece.n += 1;
        piece.mean += x;
        min = std::min(min, x);
        max = std::max(max, x);
      }
    if (piece.n > 0) piece.mean /= piece.n;
    for (double x : values)
      if (std::isfinite(x)) piece.squares += (x - piece.mean) * (x - piece.mean);
    all.merge(piece);
  }
  TensorStatistics statistics{kNan, kNan, kNan, kNan, 0.0};
  if (numel > 0)
    statistics.non_finite = (static_cast<double>(numel) - all.n) / static_cast<double>(numel);
  if (all.n > 0) {
    statistics.mean = all.mean;
    statistics.std = std::sqrt(all.squares / all.n);
    statistics.min = min;
    statistics.max = max;
  }
  return statistics;
}

std::vector<TensorDifference> differences(const Checkpoint& a, const Checkpoint& b,
                                          std::string_view kind) {
  std::map<std::string_view, std::pair<const TensorRecord*, const TensorRecord*>> pairs;
  for (const TensorRecord& tensor : a.tensors()) pairs[tensor.name].first = &tensor;
  for (const TensorRecord& tensor : b.tensors()) pairs[tensor.name].second = &tensor;
  std::vector<TensorDifference> found;
  for (const auto& [name, pair] : pairs) {
    const auto& [in_a, in_b] = pair;
    if (!kind.empty() && (in_a ? in_a : in_b)->kind != kind) continue;
    TensorDifference difference{.name = std::string(name), .what = "", .a = "", .b = ""};
    if (!in_a || !in_b) {
      difference.what = in_a ? "only in A" : "only in B";
    } else if (in_a->shape != in_b->shape) {
      difference.what = "shape";
      difference.a = to_string(in_a->shape);
      difference.b = to_string(in_b->shape);
    } else {
      difference = compare_values(a, *in_a, b, *in_b);
      if (in_a->dtype != in_b->dtype) {
        if (difference.what.empty()) difference.what = "dtype";
        difference.a = name_of(in_a->dtype);
        difference.b = name_of(in_b->dtype);
      }
    }
    if (!difference.what.empty()) found.push_back(std::move(difference));
  }
  return found;
}

}  // namespace trireme
