// Vectors of any size, and their transposition in registers.
//
// simd/kernels-inl.h includes this file and says why everything has internal linkage.
#pragma once

#include <cstddef>
#include <utility>

namespace skshap {
namespace {

// Part of a row: a vector, or half of one.
template <class T, size_t kSize>
struct RowPart {
  typedef T Type __attribute__((vector_size(kSize * sizeof(T)), may_alias));
  typedef Type Unaligned __attribute__((aligned(sizeof(T))));
};

// Gather elements of two vectors. The elements are numbered as if b followed a.
template <size_t... i, class V>
[[gnu::always_inline]] inline void gather(const V& a, const V& b, V& result) {
#if __has_builtin(__builtin_shufflevector)
  result = __builtin_shufflevector(a, b, i...);
#else  // GCC before 12
  result = __builtin_shuffle(a, b, decltype(a < b){i...});
#endif
}

// Exchange the elements of `a` whose numbers have the bit with the elements of `b` whose numbers do not have
// it.
template <size_t kBit, class V, size_t... i>
[[gnu::always_inline]] inline void exchange(V& a, V& b, std::index_sequence<i...>) {
  constexpr size_t n = sizeof...(i);
  V low;
  gather<(i & kBit ? n + i - kBit : i)...>(a, b, low);
  gather<(i & kBit ? n + i : i + kBit)...>(a, b, b);
  a = low;
}

// Transpose a square of n vectors of n elements. The vectors stay in registers only if the function is
// inlined.
template <size_t kBit, size_t n, class V>
[[gnu::always_inline]] inline void transpose(V* vectors) {
  if constexpr (kBit < n) {
    for (size_t i = 0; i < n; ++i)
      if (!(i & kBit)) exchange<kBit>(vectors[i], vectors[i + kBit], std::make_index_sequence<n>());
    transpose<2 * kBit, n>(vectors);
  }
}

}  // namespace
}  // namespace skshap
