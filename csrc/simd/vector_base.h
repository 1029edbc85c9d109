// Loads, stores and arithmetic of vectors whose instructions take whole registers, by the compiler's vectors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "simd/transpose-inl.h"

namespace skshap {
namespace {

template <class Number, int kLanes>
struct VectorBase {
  using T = Number;
  using V = typename RowPart<T, kLanes>::Type;
  static constexpr int kWidth = kLanes;
  static V load(const T* p) { return *reinterpret_cast<const V*>(p); }
  static V load_unaligned(const T* p) {
    V x;
    std::memcpy(&x, p, sizeof x);
    return x;
  }
  static void store(T* p, V x) { *reinterpret_cast<V*>(p) = x; }
  static V zero() { return V{}; }
  static V add(V a, V b) { return a + b; }
  static V sub(V a, V b) { return a - b; }
  static V mul(V a, V b) { return a * b; }
  static V div(V a, V b) { return a / b; }
  // An instruction multiplies by a whole register.
  static constexpr int kFactorLanes = 1;
  // Masks are made from words in memory.
  using Word = const uint64_t*;
  static Word word(const uint64_t* p) { return p; }
};

}  // namespace
}  // namespace skshap
