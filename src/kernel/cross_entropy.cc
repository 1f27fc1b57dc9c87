#include "kernel/cross_entropy.h"

#include <ATen/ATen.h>

#include "kernel/tensor_checks.h"

namespace trireme::kernel {
namespace {

void check_arguments(const char* op, const at::Tensor& x, const at::Tensor& weight,
                     const at::Tensor& labels) {
  require_shape(op, "weight", weight, {-1, -1});
  require_shape(op, "x", x, {-1, weight.size(1)});
  require_shape(op, "labels", labels, {x.size(0)});
  require(labels.scalar_type() == at::kLong, op, ": labels must be int64, got ", describe(labels));
  if (!labels.is_cpu()) return;
  const int64_t* label = labels.const_data_ptr<int64_t>();
  for (int64_t t = 0; t < labels.numel(); ++t)
    TRIREME_CHECK(label[t] == kIgnoredLabel || (label[t] >= 0 && label[t] < weight.size(0)), op,
                  ": label ", label[t], " at place ", t, " is neither ", kIgnoredLabel,
                  " nor below the vocabulary of ", weight.size(0));
}

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& labels, double seed, Mode mode) {
  check_arguments("linear_cross_entropy", x, weight, labels);
  (void)mode;
  (void)seed;
  return at::cross_entropy_loss(at::matmul(x, weight.t()), labels, {}, at::Reduction::Sum,
                                kIgnoredLabel);
}

at::Tensor linear_log_probs(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                            Mode mode) {
  check_arguments("linear_log_probs", x, weight, labels);
  require_no_grad("linear_log_probs", x, weight);
  (void)mode;
  return -at::cross_entropy_loss(at::matmul(x, weight.t()), labels, {}, at::Reduction::None,
                                 kIgnoredLabel);
}

}  // namespace trireme::kernel
