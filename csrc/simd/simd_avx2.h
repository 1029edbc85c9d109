// Vectors of 8 floats or 4 doubles. Only files for AVX2 include this header.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "simd/vector_base.h"

namespace {

struct FloatVector : skshap::VectorBase<float, 8> {
  using M = __m256;
  static constexpr int kRegisters = 16;
  static V set1(T x) { return _mm256_set1_ps(x); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  // Return the mask of vector number `index` of a block: the lanes whose bits in `word` are set.
  static M mask(const uint64_t* word, int index) {
    const __m256i lane = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i bits = _mm256_set1_epi32(reinterpret_cast<const uint8_t*>(word)[index]);
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(_mm256_and_si256(bits, lane), lane));
  }
  static M less(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
  static M less_equal(V a, V b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
  // Return the lanes where `code` is in an interval: code - lower <= width, modulo 2^16.
  static M within(const uint16_t* lower, const uint16_t* width, uint16_t code) {
    return within(lower, width, _mm_set1_epi16(static_cast<short>(code)));
  }
  // Return the lanes whose own code is in their interval.
  static M within(const uint16_t* lower, const uint16_t* width, const uint16_t* codes) {
    return within(lower, width, _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  }
  static M within(const uint16_t* lower, const uint16_t* width, __m128i codes) {
    const __m128i x = _mm_sub_epi16(codes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(lower)));
    const __m128i least = _mm_min_epu16(x, _mm_loadu_si128(reinterpret_cast<const __m128i*>(width)));
    return _mm256_castsi256_ps(_mm256_cvtepi16_epi32(_mm_cmpeq_epi16(x, least)));
  }
  // Return a bit for each lane of a mask, the first lane lowest.
  static uint32_t bits(M m) { return static_cast<uint32_t>(_mm256_movemask_ps(m)); }
  static V select(M m, V off, V on) { return _mm256_blendv_ps(off, on, m); }
  static V select_or_zero(M m, V on) { return _mm256_and_ps(m, on); }
  // The source lane of each lane. A negative source lane gives zero.
  struct Permutation {
    __m256i from;
    M taken;
  };
  static Permutation permutation(const int32_t* from) {
    const __m256i lanes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    return {lanes, _mm256_castsi256_ps(_mm256_cmpgt_epi32(lanes, _mm256_set1_epi32(-1)))};
  }
  static V permute(const Permutation& p, V x) {
    return _mm256_and_ps(p.taken, _mm256_permutevar8x32_ps(x, p.from));
  }
  // Indices of a table, assembled from bits or counted.
  using IndexVector = __m256i;
  static IndexVector no_bits() { return _mm256_setzero_si256(); }
  static IndexVector add_where(IndexVector x, M lanes, int n) {
    return _mm256_add_epi32(x, _mm256_and_si256(_mm256_castps_si256(lanes), _mm256_set1_epi32(n)));
  }
  using VectorBase::store;
  static void store(uint32_t* p, IndexVector x) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), x); }
  static IndexVector with_bit(IndexVector x, M lanes, int bit) {
    return _mm256_or_si256(x, _mm256_and_si256(_mm256_castps_si256(lanes), _mm256_set1_epi32(1 << bit)));
  }
  static IndexVector without_bit(IndexVector x, int bit) {
    return _mm256_andnot_si256(_mm256_set1_epi32(1 << bit), x);
  }
  // Look up elements of a table in 2^kVectors registers. The indices must be smaller than the table.
  static constexpr int kMostTableVectors = 2;
  template <int kVectors>
  static V take(const V* table, IndexVector x) {
    if constexpr (kVectors == 0) {
      return _mm256_permutevar8x32_ps(table[0], x);
    } else {
      // The bit that chooses the half becomes the sign bit, which blendv tests.
      const M upper = _mm256_castsi256_ps(_mm256_slli_epi32(x, 29 - kVectors));
      return select(upper, take<kVectors - 1>(table, x),
                    take<kVectors - 1>(table + (1 << (kVectors - 1)), x));
    }
  }
  // On this instruction set, scalar loads are as fast as gathers, and faster where microcode slows gathers
  // down.
  static constexpr bool kGathers = false;
  static V take(const T* table, IndexVector x) { return _mm256_i32gather_ps(table, x, 4); }
};

struct DoubleVector : skshap::VectorBase<double, 4> {
  using M = __m256d;
  static constexpr int kRegisters = 16;
  static V set1(T x) { return _mm256_set1_pd(x); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_pd(a, b, c); }
  static M mask(const uint64_t* word, int index) {
    const __m256i lane = _mm256_setr_epi64x(1, 2, 4, 8);
    const __m256i bits = _mm256_set1_epi64x(static_cast<long long>(*word >> (4 * index)));
    return _mm256_castsi256_pd(_mm256_cmpeq_epi64(_mm256_and_si256(bits, lane), lane));
  }
  static M less(V a, V b) { return _mm256_cmp_pd(a, b, _CMP_LT_OQ); }
  static M less_equal(V a, V b) { return _mm256_cmp_pd(a, b, _CMP_LE_OQ); }
  static M within(const uint16_t* lower, const uint16_t* width, uint16_t code) {
    return within(lower, width, _mm_set1_epi16(static_cast<short>(code)));
  }
  static M within(const uint16_t* lower, const uint16_t* width, const uint16_t* codes) {
    return within(lower, width, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  }
  static M within(const uint16_t* lower, const uint16_t* width, __m128i codes) {
    const __m128i x = _mm_sub_epi16(codes, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(lower)));
    const __m128i least = _mm_min_epu16(x, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(width)));
    return _mm256_castsi256_pd(_mm256_cvtepi16_epi64(_mm_cmpeq_epi16(x, least)));
  }
  static uint32_t bits(M m) { return static_cast<uint32_t>(_mm256_movemask_pd(m)); }
  static V select(M m, V off, V on) { return _mm256_blendv_pd(off, on, m); }
  static V select_or_zero(M m, V on) { return _mm256_and_pd(m, on); }
  // Each lane moves as two halves, because the instruction permutes 32-bit lanes.
  struct Permutation {
    __m256i from;
    M taken;
  };
  static Permutation permutation(const int32_t* from) {
    const __m256i lanes = _mm256_cvtepi32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    const __m256i low = _mm256_slli_epi64(lanes, 1);
    return {_mm256_or_si256(low, _mm256_slli_epi64(_mm256_add_epi64(low, _mm256_set1_epi64x(1)), 32)),
            _mm256_castsi256_pd(_mm256_cmpgt_epi64(lanes, _mm256_set1_epi64x(-1)))};
  }
  static V permute(const Permutation& p, V x) {
    return _mm256_and_pd(p.taken, _mm256_castps_pd(_mm256_permutevar8x32_ps(_mm256_castpd_ps(x), p.from)));
  }
  using IndexVector = __m256i;
  static IndexVector no_bits() { return _mm256_setzero_si256(); }
  static IndexVector add_where(IndexVector x, M lanes, int n) {
    return _mm256_add_epi64(x, _mm256_and_si256(_mm256_castpd_si256(lanes), _mm256_set1_epi64x(n)));
  }
  using VectorBase::store;
  static void store(uint32_t* p, IndexVector x) {
    const __m256i low = _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 0, 2, 4, 6));
    _mm_store_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(low));
  }
  static IndexVector with_bit(IndexVector x, M lanes, int bit) {
    return _mm256_or_si256(x, _mm256_and_si256(_mm256_castpd_si256(lanes), _mm256_set1_epi64x(1 << bit)));
  }
  static IndexVector without_bit(IndexVector x, int bit) {
    return _mm256_andnot_si256(_mm256_set1_epi64x(1 << bit), x);
  }
  static constexpr int kMostTableVectors = -1;
  static constexpr bool kGathers = false;
  static V take(const T* table, IndexVector x) { return _mm256_i64gather_pd(table, x, 8); }
};

// The numbers of the 64 rows of a block. They are sums modulo 2^16.
class BlockIndex {
 public:
  // Add a number to the numbers of some rows.
  void add(uint64_t rows, uint16_t number) {
    const __m256i lane = _mm256_setr_epi16(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192,
                                           16384, static_cast<short>(32768));
    const __m256i x = _mm256_set1_epi16(static_cast<short>(number));
    for (int i = 0; i < 4; ++i) {
      const __m256i bits = _mm256_set1_epi16(static_cast<short>(rows >> (16 * i)));
      const __m256i set = _mm256_cmpeq_epi16(_mm256_and_si256(bits, lane), lane);
      part_[i] = _mm256_add_epi16(part_[i], _mm256_and_si256(set, x));
    }
  }
  // Add a number to the rows whose codes are beyond an operand.
  void add_beyond(const uint16_t* codes, uint16_t operand, uint16_t number) {
    const __m256i limit = _mm256_set1_epi16(static_cast<short>(operand));
    const __m256i x = _mm256_set1_epi16(static_cast<short>(number));
    for (int i = 0; i < 4; ++i) {
      const __m256i c = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 16 * i));
      const __m256i within = _mm256_cmpeq_epi16(_mm256_min_epu16(c, limit), c);
      part_[i] = _mm256_add_epi16(part_[i], _mm256_andnot_si256(within, x));
    }
  }
  void store(uint16_t* out) const {
    for (int i = 0; i < 4; ++i) _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 16 * i), part_[i]);
  }

 private:
  __m256i part_[4] = {_mm256_setzero_si256(), _mm256_setzero_si256(), _mm256_setzero_si256(),
                      _mm256_setzero_si256()};
};

// Return a bit for each of 64 codes c: whether (c + bias) <= operand, computed in the width of the codes.
inline uint64_t passes(const uint16_t* codes, uint32_t bias, uint32_t operand) {
  const __m256i b = _mm256_set1_epi16(static_cast<short>(bias));
  const __m256i limit = _mm256_set1_epi16(static_cast<short>(operand));
  uint64_t bits = 0;
  for (int i = 0; i < 2; ++i) {
    const __m256i* p = reinterpret_cast<const __m256i*>(codes + 32 * i);
    const __m256i lo = _mm256_add_epi16(_mm256_loadu_si256(p), b);
    const __m256i hi = _mm256_add_epi16(_mm256_loadu_si256(p + 1), b);
    const __m256i pass_lo = _mm256_cmpeq_epi16(_mm256_min_epu16(lo, limit), lo);
    const __m256i pass_hi = _mm256_cmpeq_epi16(_mm256_min_epu16(hi, limit), hi);
    // The pack instruction works within 128-bit halves, and the permutation restores the order of the rows.
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(pass_lo, pass_hi), 0xD8);
    bits |= static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(bytes))) << (32 * i);
  }
  return bits;
}

inline uint64_t passes(const uint32_t* codes, uint32_t bias, uint32_t operand) {
  const __m256i b = _mm256_set1_epi32(static_cast<int>(bias));
  const __m256i limit = _mm256_set1_epi32(static_cast<int>(operand));
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) {
    const __m256i c =
        _mm256_add_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes + 8 * i)), b);
    const __m256i pass = _mm256_cmpeq_epi32(_mm256_min_epu32(c, limit), c);
    bits |= static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(pass))))
            << (8 * i);
  }
  return bits;
}

}  // namespace
