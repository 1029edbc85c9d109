// Vectors of 128 bits, by the compiler's vector extension: SSE2 on any x86-64 processor, NEON on arm64. Only
// the baseline files include this header.
#pragma once

#include <stdint.h>
#include <string.h>

#include "simd/vector_base.h"

namespace {

typedef int16_t Short8 __attribute__((vector_size(16)));
typedef uint16_t UShort8 __attribute__((vector_size(16)));

// Arithmetic and masks, for any number of lanes. A lane of a mask is -1 or 0.
template <class Number, class Int, int kLanes>
struct BaselineVector : skshap::VectorBase<Number, kLanes> {
  using typename skshap::VectorBase<Number, kLanes>::V;
  typedef Int M __attribute__((vector_size(16)));
  static constexpr int kRegisters = 16;
  static V fma(V a, V b, V c) { return a * b + c; }
  static M less(V a, V b) { return a < b; }
  static M less_equal(V a, V b) { return a <= b; }
  static V select(M m, V off, V on) { return (V)(((M)on & m) | ((M)off & ~m)); }
  static V select_or_zero(M m, V on) { return (V)((M)on & m); }
  // The source lane of each lane. A negative source lane gives zero.
  struct Permutation {
    int32_t from[kLanes];
    M taken;
  };
  static Permutation permutation(const int32_t* from) {
    Permutation p;
    for (int i = 0; i < kLanes; ++i) {
      p.from[i] = from[i] < 0 ? 0 : from[i];
      p.taken[i] = from[i] < 0 ? 0 : -1;
    }
    return p;
  }
  // Indices of a table, assembled from bits or counted.
  using IndexVector = M;
  static IndexVector no_bits() { return IndexVector{}; }
  static IndexVector add_where(IndexVector x, M lanes, int n) { return x + (lanes & Int{n}); }
  using skshap::VectorBase<Number, kLanes>::store;
  static void store(uint32_t* p, IndexVector x) {
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint32_t>(x[i]);
  }
  static IndexVector with_bit(IndexVector x, M lanes, int bit) { return x | (lanes & (Int{1} << bit)); }
  static IndexVector without_bit(IndexVector x, int bit) { return x & ~(Int{1} << bit); }
  // Tables are not kept in registers.
  static constexpr int kMostTableVectors = -1;
  static constexpr bool kGathers = false;
};

struct FloatVector : BaselineVector<float, int32_t, 4> {
  static V set1(T x) { return V{x, x, x, x}; }
  // Return the mask of vector number `index` of a block: the lanes whose bits in `word` are set.
  static M mask(const uint64_t* word, int index) {
    const int32_t bits = static_cast<int32_t>(*word >> (4 * index));
    return (M{bits, bits, bits, bits} & M{1, 2, 4, 8}) == M{1, 2, 4, 8};
  }
  // Return the lanes where `code` is in an interval: code - lower <= width, modulo 2^16.
  static M within(const uint16_t* lower, const uint16_t* width, uint16_t code) {
    const uint16_t codes[] = {code, code, code, code};
    return within(lower, width, codes);
  }
  // Return the lanes whose own code is in their interval.
  static M within(const uint16_t* lower, const uint16_t* width, const uint16_t* codes) {
    const M x = {(codes[0] - lower[0]) & 0xffff, (codes[1] - lower[1]) & 0xffff,
                 (codes[2] - lower[2]) & 0xffff, (codes[3] - lower[3]) & 0xffff};
    return x <= M{width[0], width[1], width[2], width[3]};
  }
  // Return a bit for each lane of a mask, the first lane lowest.
  static uint32_t bits(M m) {
    const M bit = m & M{1, 2, 4, 8};
    return static_cast<uint32_t>(bit[0] | bit[1] | bit[2] | bit[3]);
  }
  static V permute(const Permutation& p, V x) {
    return (V)((M)V{x[p.from[0]], x[p.from[1]], x[p.from[2]], x[p.from[3]]} & p.taken);
  }
  static V take(const T* table, IndexVector x) {
    return V{table[x[0]], table[x[1]], table[x[2]], table[x[3]]};
  }
};

struct DoubleVector : BaselineVector<double, int64_t, 2> {
  static V set1(T x) { return V{x, x}; }
  static M mask(const uint64_t* word, int index) {
    const uint64_t bits = *word >> (2 * index);
    return M{-static_cast<int64_t>(bits & 1), -static_cast<int64_t>(bits >> 1 & 1)};
  }
  static M within(const uint16_t* lower, const uint16_t* width, uint16_t code) {
    const uint16_t codes[] = {code, code};
    return within(lower, width, codes);
  }
  static M within(const uint16_t* lower, const uint16_t* width, const uint16_t* codes) {
    return M{(codes[0] - lower[0]) & 0xffff, (codes[1] - lower[1]) & 0xffff} <= M{width[0], width[1]};
  }
  static uint32_t bits(M m) { return static_cast<uint32_t>((m[0] & 1) | (m[1] & 2)); }
  static V permute(const Permutation& p, V x) { return (V)((M)V{x[p.from[0]], x[p.from[1]]} & p.taken); }
  static V take(const T* table, IndexVector x) { return V{table[x[0]], table[x[1]]}; }
};

// The numbers of the 64 rows of a block. They are sums modulo 2^16.
class BlockIndex {
 public:
  // Add a number to the numbers of some rows.
  void add(uint64_t rows, uint16_t number) {
    const Short8 lane = {1, 2, 4, 8, 16, 32, 64, 128};
    for (int i = 0; i < 8; ++i) {
      const int16_t bits = static_cast<int16_t>(rows >> (8 * i) & 0xff);
      const Short8 set = (Short8{bits, bits, bits, bits, bits, bits, bits, bits} & lane) == lane;
      part_[i] += (UShort8)set & number;
    }
  }
  // Add a number to the rows whose codes are beyond an operand.
  void add_beyond(const uint16_t* codes, uint16_t operand, uint16_t number) {
    for (int i = 0; i < 8; ++i) {
      UShort8 c;
      memcpy(&c, codes + 8 * i, sizeof c);
      // Signed, so that GCC 12 negates by pandn instead of a second comparison.
      part_[i] += (UShort8)((Short8)(c > operand) & static_cast<int16_t>(number));
    }
  }
  void store(uint16_t* out) const { memcpy(out, part_, sizeof part_); }

 private:
  UShort8 part_[8] = {};
};

// Return a bit for each of 64 codes c: whether (c + bias) <= operand, computed in the width of the codes. The
// compiler vectorizes the comparison, and one multiplication turns eight bytes of 0 or 1 into eight bits.
template <class Code>
inline uint64_t passes(const Code* codes, uint32_t bias, uint32_t operand) {
  alignas(16) uint8_t pass[64];
  for (int i = 0; i < 64; ++i) pass[i] = static_cast<Code>(codes[i] + bias) <= static_cast<Code>(operand);
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) {
    uint64_t bytes = 0;
    for (int j = 0; j < 8; ++j) bytes |= static_cast<uint64_t>(pass[8 * i + j]) << (8 * j);
    bits |= (bytes * 0x0102040810204080ull >> 56) << (8 * i);
  }
  return bits;
}

}  // namespace
