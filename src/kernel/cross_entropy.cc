#include "kernel/cross_entropy.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "kernel/differentiable.h"
#include "kernel/linear.h"
#include "kernel/simd/softmax.h"
#include "kernel/tensor_checks.h"
#include "kernel/work_time.h"

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

void check_fused(const char* op, const at::Tensor& x, const at::Tensor& weight,
                 const at::Tensor& labels) {
  require_fused(op, "x", x, x);
  require_fused(op, "weight", weight, x);
  require(labels.is_cpu(), op, ": labels must be on a CPU, got ", describe(labels));
}

at::Tensor logits_reference(const at::Tensor& x, const at::Tensor& weight, double softcap) {
  const at::Tensor z = at::matmul(x, weight.t());
  return softcap > 0 ? softcap * at::tanh(z / softcap) : z;
}

// Calls body(first row, rows, x weight^T [rows, V], labels) for each chunk; a chunk without a valid
// label is left out.
template <class Body>
void for_each_chunk(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                    Body&& body) {
  const int64_t* label = labels.const_data_ptr<int64_t>();
  const at::Tensor buffer =
      at::empty({std::min(kLossChunkRows, x.size(0)), weight.size(0)}, x.options());
  for (int64_t first = 0; first < x.size(0); first += kLossChunkRows, label += kLossChunkRows) {
    const int64_t rows = std::min(kLossChunkRows, x.size(0) - first);
    if (std::all_of(label, label + rows, [](int64_t l) { return l == kIgnoredLabel; })) continue;
    at::Tensor logits = buffer.narrow(0, 0, rows);
    {
      const TimedWork timed(&WorkTime::gemm);
      at::mm_out(logits, x.narrow(0, first, rows), weight.t());
    }
    body(first, rows, logits, label);
  }
}

// The sum of the rows' losses; the logits are bent in place.
template <class T>
double loss_of(const at::Tensor& logits, const int64_t* label, double softcap) {
  const auto loops = simd::softmax_loops<T>();
  const int64_t n = logits.size(1);
  T* z = logits.mutable_data_ptr<T>();
  double loss = 0;
  for (int64_t row = 0; row < logits.size(0); ++row, z += n) {
    if (label[row] == kIgnoredLabel) continue;
    if (softcap > 0) loops.bend(n, z, softcap, nullptr);
    loss += loops.log_sum_exp(n, z) - z[label[row]];
  }
  return loss;
}

// The loss, and logits become seed times its gradient by them. slopes: V elements, if there is a
// soft-cap.
template <class T>
double loss_and_gradient(const at::Tensor& logits, const int64_t* label, double seed,
                         double softcap, T* slopes) {
  const auto loops = simd::softmax_loops<T>();
  const int64_t n = logits.size(1);
  T* z = logits.mutable_data_ptr<T>();
  double loss = 0;
  for (int64_t row = 0; row < logits.size(0); ++row, z += n) {
    if (label[row] == kIgnoredLabel) {
      std::fill_n(z, n, T{0});
      continue;
    }
    if (softcap > 0) loops.bend(n, z, softcap, slopes);
    const T target = z[label[row]];
    loss += loops.softmax_in_place(n, z, seed) - target;
    z[label[row]] -= static_cast<T>(seed);
    if (softcap > 0) loops.multiply(n, slopes, z);
  }
  return loss;
}

// The gradients of the sum, times seed.
struct Gradients {
  at::Tensor x, weight;  // undefined: not wanted
};

double loss_with_gradients(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                           double seed, double softcap, Gradients& gradients) {
  double loss = 0;
  const at::Tensor slopes = at::empty({softcap > 0 ? weight.size(0) : 0}, x.options());
  for_each_chunk(x, weight, labels,
                 [&](int64_t first, int64_t rows, const at::Tensor& logits, const int64_t* label) {
                   dispatch_float_double(x, [&]<class T>(T) {
                     loss += loss_and_gradient<T>(logits, label, seed, softcap,
                                                  slopes.mutable_data_ptr<T>());
                   });
                   const TimedWork timed(&WorkTime::gemm);
                   if (gradients.x.defined()) {
                     at::Tensor dx = gradients.x.narrow(0, first, rows);
                     at::mm_out(dx, logits, weight);
                   }
                   if (gradients.weight.defined())
                     gradients.weight.addmm_(logits.t(), x.narrow(0, first, rows));
                 });
  return loss;
}

double loss_alone(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                  double softcap) {
  double loss = 0;
  for_each_chunk(
      x, weight, labels, [&](int64_t, int64_t, const at::Tensor& logits, const int64_t* label) {
        dispatch_float_double(x, [&]<class T>(T) { loss += loss_of<T>(logits, label, softcap); });
      });
  return loss;
}

Tensors backward(const BackwardPass& pass, double seed) {
  const at::Tensor& d_loss = pass.d_out[0];
  if (!d_loss.defined()) return Tensors(2);
  const double got = d_loss.item<double>();  // one read of a number on the CPU
  const bool same =
      d_loss.scalar_type() == at::kFloat ? got == static_cast<float>(seed) : got == seed;
  require(same, "linear_cross_entropy: the gradients are made for a sum that receives ", seed,
          ", but it receives ", got);
  return pass.saved;
}

at::Tensor linear_cross_entropy_fused(const at::Tensor& x, const at::Tensor& weight,
                                      const at::Tensor& labels, double seed, double softcap) {
  return differentiable({x, weight}, [&] {
    Gradients gradients;
    at::Tensor returned;
    if (x.requires_grad()) gradients.x = at::zeros_like(x);
    if (has_grad_to_add_to(weight))
      gradients.weight = grad_to_add_to("linear_cross_entropy", weight);
    else if (weight.requires_grad()) gradients.weight = returned = at::zeros_like(weight);
    const double loss = loss_with_gradients(x, weight, labels, seed, softcap, gradients);
    return ForwardPass{{at::scalar_tensor(loss, x.options())},
                       {gradients.x, returned},
                       [seed](const BackwardPass& pass) { return backward(pass, seed); }};
  })[0];
}

}  // namespace

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& labels, double seed, Mode mode, double softcap) {
  const char* op = "linear_cross_entropy";
  check_arguments(op, x, weight, labels);
  if (mode == Mode::reference)
    return at::cross_entropy_loss(logits_reference(x, weight, softcap), labels, {},
                                  at::Reduction::Sum, kIgnoredLabel);
  check_fused(op, x, weight, labels);
  if (at::GradMode::is_enabled() && (x.requires_grad() || weight.requires_grad()))
    return linear_cross_entropy_fused(x, weight, labels, seed, softcap);
  const at::NoGradGuard no_grad;
  return at::scalar_tensor(loss_alone(x, weight, labels, softcap), x.options());
}

at::Tensor linear_log_probs(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& labels,
                            Mode mode, double softcap) {
  const char* op = "linear_log_probs";
  check_arguments(op, x, weight, labels);
  require_no_grad(op, x, weight);
  const at::NoGradGuard no_grad;
  if (mode == Mode::reference)
    return -at::cross_entropy_loss(logits_reference(x, weight, softcap), labels, {},
                                   at::Reduction::None, kIgnoredLabel);
  check_fused(op, x, weight, labels);
  const at::Tensor out = at::zeros({x.size(0)}, x.options());
  dispatch_float_double(x, [&]<class T>(T) {
    const auto loops = simd::softmax_loops<T>();
    for_each_chunk(
        x, weight, labels,
        [&](int64_t first, int64_t rows, const at::Tensor& logits, const int64_t* label) {
          const int64_t n = weight.size(0);
          T* z = logits.mutable_data_ptr<T>();
          T* to = out.mutable_data_ptr<T>() + first;
          for (int64_t row = 0; row < rows; ++row, z += n) {
            if (label[row] == kIgnoredLabel) continue;
            if (softcap > 0) loops.bend(n, z, softcap, nullptr);
            to[row] = static_cast<T>(z[label[row]] - loops.log_sum_exp(n, z));
          }
        });
  });
  return out;
}

at::Tensor linear_logits(const at::Tensor& x, const at::Tensor& weight, Mode mode, double softcap) {
  const char* op = "linear_logits";
  require_shape(op, "weight", weight, {-1, -1});
  require_shape(op, "x", x, {-1, weight.size(1)});
  require_no_grad(op, x, weight);
  const at::NoGradGuard no_grad;
  if (mode == Mode::reference) return logits_reference(x, weight, softcap);
  require_fused(op, "x", x, x);
  require_fused(op, "weight", weight, x);
  const at::Tensor z = linear(x, weight, mode);
  if (softcap > 0)
    dispatch_float_double(z, [&]<class T>(T) {
      simd::softmax_loops<T>().bend(z.numel(), z.mutable_data_ptr<T>(), softcap, nullptr);
    });
  return z;
}

}  // namespace trireme::kernel
