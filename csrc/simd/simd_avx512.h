// Vectors of 16 floats or 8 doubles with mask registers. Only files for AVX-512 include this header.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "simd/vector_base.h"

namespace {

struct FloatVector : skshap::VectorBase<float, 16> {
  using M = __mmask16;
  static constexpr int kRegisters = 32;
  static V set1(T x) { return _mm512_set1_ps(x); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  // Return the mask of vector number `index` of a block: the lanes whose bits in `word` are set.
  static M mask(const uint64_t* word, int index) {
    uint16_t bits;
    memcpy(&bits, reinterpret_cast<const char*>(word) + 2 * index, sizeof bits);
    return bits;
  }
  static M less(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
  static M less_equal(V a, V b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
  // Return the lanes where `code` is in an interval: code - lower <= width, modulo 2^16.
  static M within(const uint16_t* lower, const uint16_t* width, uint16_t code) {
    return within(lower, width, _mm256_set1_epi16(static_cast<short>(code)));
  }
  // Return the lanes whose own code is in their interval.
  static M within(const uint16_t* lower, const uint16_t* width, const uint16_t* codes) {
    return within(lower, width, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes)));
  }
  static M within(const uint16_t* lower, const uint16_t* width, __m256i codes) {
    const __m256i from = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(lower));
    return _mm256_cmple_epu16_mask(_mm256_sub_epi16(codes, from),
                                   _mm256_loadu_si256(reinterpret_cast<const __m256i*>(width)));
  }
  // Return a bit for each lane of a mask, the first lane lowest.
  static uint32_t bits(M m) { return m; }
  static V select(M m, V off, V on) { return _mm512_mask_mov_ps(off, m, on); }
  static V select_or_zero(M m, V on) { return _mm512_maskz_mov_ps(m, on); }
  // The source lane of each lane. A negative source lane gives zero.
  struct Permutation {
    __m512i from;
    M taken;
  };
  static Permutation permutation(const int32_t* from) {
    const __m512i lanes = _mm512_loadu_si512(from);
    return {lanes, _mm512_cmpge_epi32_mask(lanes, _mm512_setzero_si512())};
  }
  static V permute(const Permutation& p, V x) { return _mm512_maskz_permutexvar_ps(p.taken, p.from, x); }
  // Indices of a table, assembled from bits or counted.
  using IndexVector = __m512i;
  static IndexVector no_bits() { return _mm512_setzero_si512(); }
  static IndexVector add_where(IndexVector x, M lanes, int n) {
    return _mm512_mask_add_epi32(x, lanes, x, _mm512_set1_epi32(n));
  }
  using VectorBase::store;
  static void store(uint32_t* p, IndexVector x) { _mm512_store_si512(p, x); }
  static IndexVector with_bit(IndexVector x, M lanes, int bit) {
    return _mm512_mask_or_epi32(x, lanes, x, _mm512_set1_epi32(1 << bit));
  }
  static IndexVector without_bit(IndexVector x, int bit) {
    return _mm512_and_si512(x, _mm512_set1_epi32(~(1 << bit)));
  }
  // Look up elements of a table in 2^kVectors registers. The indices must be smaller than the table.
  static constexpr int kMostTableVectors = 3;
  template <int kVectors>
  static V take(const V* table, IndexVector x) {
    if constexpr (kVectors == 0)
      return _mm512_maskz_permutexvar_ps(0xffff, x, table[0]);
    else if constexpr (kVectors == 1)
      return _mm512_permutex2var_ps(table[0], x, table[1]);
    else
      return select(_mm512_test_epi32_mask(x, _mm512_set1_epi32(8 << kVectors)), take<kVectors - 1>(table, x),
                    take<kVectors - 1>(table + (1 << (kVectors - 1)), x));
  }
  static constexpr bool kGathers = true;
  static V take(const T* table, IndexVector x) {
    return _mm512_mask_i32gather_ps(zero(), 0xffff, x, table, 4);
  }
};

struct DoubleVector : skshap::VectorBase<double, 8> {
  using M = __mmask8;
  static constexpr int kRegisters = 32;
  static V set1(T x) { return _mm512_set1_pd(x); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_pd(a, b, c); }
  static M mask(const uint64_t* word, int index) { return reinterpret_cast<const uint8_t*>(word)[index]; }
  static M less(V a, V b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
  static M less_equal(V a, V b) { return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ); }
  static M within(const uint16_t* lower, const uint16_t* width, uint16_t code) {
    return within(lower, width, _mm_set1_epi16(static_cast<short>(code)));
  }
  static M within(const uint16_t* lower, const uint16_t* width, const uint16_t* codes) {
    return within(lower, width, _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  }
  static M within(const uint16_t* lower, const uint16_t* width, __m128i codes) {
    const __m128i from = _mm_loadu_si128(reinterpret_cast<const __m128i*>(lower));
    return _mm_cmple_epu16_mask(_mm_sub_epi16(codes, from),
                                _mm_loadu_si128(reinterpret_cast<const __m128i*>(width)));
  }
  static uint32_t bits(M m) { return m; }
  static V select(M m, V off, V on) { return _mm512_mask_mov_pd(off, m, on); }
  static V select_or_zero(M m, V on) { return _mm512_maskz_mov_pd(m, on); }
  struct Permutation {
    __m512i from;
    M taken;
  };
  static Permutation permutation(const int32_t* from) {
    const __m512i lanes =
        _mm512_maskz_cvtepi32_epi64(0xff, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return {lanes, _mm512_cmpge_epi64_mask(lanes, _mm512_setzero_si512())};
  }
  static V permute(const Permutation& p, V x) { return _mm512_maskz_permutexvar_pd(p.taken, p.from, x); }
  using IndexVector = __m512i;
  static IndexVector no_bits() { return _mm512_setzero_si512(); }
  static IndexVector add_where(IndexVector x, M lanes, int n) {
    return _mm512_mask_add_epi64(x, lanes, x, _mm512_set1_epi64(n));
  }
  using VectorBase::store;
  static void store(uint32_t* p, IndexVector x) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(p), _mm512_maskz_cvtepi64_epi32(0xff, x));
  }
  static IndexVector with_bit(IndexVector x, M lanes, int bit) {
    return _mm512_mask_or_epi64(x, lanes, x, _mm512_set1_epi64(1 << bit));
  }
  static IndexVector without_bit(IndexVector x, int bit) {
    return _mm512_and_si512(x, _mm512_set1_epi64(~(1 << bit)));
  }
  static constexpr int kMostTableVectors = 3;
  template <int kVectors>
  static V take(const V* table, IndexVector x) {
    if constexpr (kVectors == 0)
      return _mm512_maskz_permutexvar_pd(0xff, x, table[0]);
    else if constexpr (kVectors == 1)
      return _mm512_permutex2var_pd(table[0], x, table[1]);
    else
      return select(_mm512_test_epi64_mask(x, _mm512_set1_epi64(4 << kVectors)), take<kVectors - 1>(table, x),
                    take<kVectors - 1>(table + (1 << (kVectors - 1)), x));
  }
  static constexpr bool kGathers = true;
  static V take(const T* table, IndexVector x) { return _mm512_mask_i64gather_pd(zero(), 0xff, x, table, 8); }
};

// The numbers of the 64 rows of a block. They are sums modulo 2^16.
class BlockIndex {
 public:
  // Add a number to the numbers of some rows.
  void add(uint64_t rows, uint16_t number) {
    const __m512i x = _mm512_set1_epi16(static_cast<short>(number));
    lo_ = _mm512_mask_add_epi16(lo_, static_cast<__mmask32>(rows), lo_, x);
    hi_ = _mm512_mask_add_epi16(hi_, static_cast<__mmask32>(rows >> 32), hi_, x);
  }
  // Add a number to the rows whose codes are beyond an operand.
  void add_beyond(const uint16_t* codes, uint16_t operand, uint16_t number) {
    const __m512i limit = _mm512_set1_epi16(static_cast<short>(operand));
    const __m512i x = _mm512_set1_epi16(static_cast<short>(number));
    lo_ = _mm512_mask_add_epi16(lo_, _mm512_cmpgt_epu16_mask(_mm512_loadu_si512(codes), limit), lo_, x);
    hi_ = _mm512_mask_add_epi16(hi_, _mm512_cmpgt_epu16_mask(_mm512_loadu_si512(codes + 32), limit), hi_, x);
  }
  void store(uint16_t* out) const {
    _mm512_storeu_si512(out, lo_);
    _mm512_storeu_si512(out + 32, hi_);
  }

 private:
  __m512i lo_ = _mm512_setzero_si512(), hi_ = _mm512_setzero_si512();
};

// Return a bit for each of 64 codes c: whether (c + bias) <= operand, computed in the width of the codes.
inline uint64_t passes(const uint16_t* codes, uint32_t bias, uint32_t operand) {
  const __m512i b = _mm512_set1_epi16(static_cast<short>(bias));
  const __m512i limit = _mm512_set1_epi16(static_cast<short>(operand));
  const __m512i lo = _mm512_add_epi16(_mm512_loadu_si512(codes), b);
  const __m512i hi = _mm512_add_epi16(_mm512_loadu_si512(codes + 32), b);
  return static_cast<uint64_t>(_mm512_cmple_epu16_mask(lo, limit)) |
         static_cast<uint64_t>(_mm512_cmple_epu16_mask(hi, limit)) << 32;
}

inline uint64_t passes(const uint32_t* codes, uint32_t bias, uint32_t operand) {
  const __m512i b = _mm512_set1_epi32(static_cast<int>(bias));
  const __m512i limit = _mm512_set1_epi32(static_cast<int>(operand));
  uint64_t bits = 0;
  for (int i = 0; i < 4; ++i) {
    const __m512i c = _mm512_add_epi32(_mm512_loadu_si512(codes + 16 * i), b);
    bits |= static_cast<uint64_t>(_mm512_cmple_epu32_mask(c, limit)) << (16 * i);
  }
  return bits;
}

}  // namespace
