// The loops of attention over one stretch of rows that see only each other: a document. attention.h
// has the formula and the letters. For float and double.
#pragma once

#include <cstdint>

namespace trireme::kernel::simd {

template <class T>
struct Rotation {
  const T *cos, *sin;        // [positions, half]; half = 0: no rotation
  const int32_t* positions;  // of each row
  int64_t half;
};

template <class T>
struct AttentionRows {
  const T* qkv;  // [rows, (heads + 2 kv_heads) * head_dim]
  Rotation<T> rotation;
  int64_t rows, heads, kv_heads, head_dim;
  double scale;
  int64_t window;  // keys that a row sees, itself included; at least 1
  double softcap;  // 0: none
};

// Rows that follow others whose rotated keys and values are in a cache [kv_heads, capacity,
// head_dim] at places 0 … cached - 1.
template <class T>
struct CachedRows {
  AttentionRows<T> fresh;
  T *keys, *values;
  int64_t capacity, cached;
  int64_t kv_begin, kv_end;  // the key/value heads to attend to, with their query heads
};

template <class T>
struct AttentionLoops {
  // Elements of scratch for `rows` rows (keys, in a cache) of head_dim; 64-byte aligned.
  int64_t (*forward_scratch)(int64_t rows, int64_t head_dim);
  int64_t (*backward_scratch)(int64_t rows, int64_t head_dim);

  // out [rows, heads * head_dim]. lse: head h, row t at lse[h * lse_stride + t], in base 2.
  void (*forward)(const AttentionRows<T>& in, T* out, T* lse, int64_t lse_stride, T* scratch);
  // d_qkv as qkv; every element is written.
  void (*backward)(const AttentionRows<T>& in, const T* out, const T* lse, int64_t lse_stride,
                   const T* d_out, T* d_qkv, T* scratch);
  void (*forward_cached)(const CachedRows<T>& in, T* out, T* scratch);
};

template <class T>
AttentionLoops<T> attention_loops();  // for this CPU

}  // namespace trireme::kernel::simd
