// Vectors of 4 floats or 2 doubles in the 32 registers of AArch64. Only files for NEON include this header.
#pragma once

#include <arm_neon.h>
#include <stdint.h>

#include <utility>

#include "simd/vector_base.h"

// Without this pragma, GCC 12 does not unroll loops of more than 8 steps, and each step chooses a lane at run
// time.
#define SKSHAP_UNROLL _Pragma("GCC unroll 64")

namespace {

// The bytes of a word of decisions that a vector needs, and the bit of each lane in these bytes. For each
// vector, the compiler reads them once for all words.
struct FloatLanes {
  alignas(16) uint8_t byte[16][16];
  alignas(16) uint32_t bit[16][4];
};
constexpr FloatLanes float_lanes() {
  FloatLanes x{};
  for (int index = 0; index < 16; ++index) {
    for (int i = 0; i < 16; ++i) x.byte[index][i] = static_cast<uint8_t>(index / 2);
    for (int lane = 0; lane < 4; ++lane) x.bit[index][lane] = 1u << (4 * (index % 2) + lane);
  }
  return x;
}
struct DoubleLanes {
  alignas(16) uint64_t bit[32][2];
};
constexpr DoubleLanes double_lanes() {
  DoubleLanes x{};
  for (int row = 0; row < 64; ++row) x.bit[row / 2][row % 2] = uint64_t{1} << row;
  return x;
}
constexpr FloatLanes kFloatLanes = float_lanes();
constexpr DoubleLanes kDoubleLanes = double_lanes();

// Look up bytes in a table of 2^kVectors registers. Bytes beyond the table are 0.
template <int kVectors>
inline uint8x16_t table_bytes(const uint8x16_t* table, uint8x16_t x) {
  if constexpr (kVectors == 0) {
    return vqtbl1q_u8(table[0], x);
  } else if constexpr (kVectors == 1) {
    const uint8x16x2_t both = {{table[0], table[1]}};
    return vqtbl2q_u8(both, x);
  } else {
    const uint8x16x4_t low = {{table[0], table[1], table[2], table[3]}};
    if constexpr (kVectors == 2) {
      return vqtbl4q_u8(low, x);
    } else {
      const uint8x16x4_t high = {{table[4], table[5], table[6], table[7]}};
      return vqtbx4q_u8(vqtbl4q_u8(low, x), high, vsubq_u8(x, vdupq_n_u8(64)));
    }
  }
}

struct FloatVector : skshap::VectorBase<float, 4> {
  using M = uint32x4_t;
  static constexpr int kRegisters = 32;
  static V set1(T x) { return vdupq_n_f32(x); }
  static V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
  // A number in a lane of a vector. Instructions multiply by it without a broadcast. Once loops are unrolled,
  // the lane must be a constant, so that all cases but one vanish.
  static constexpr int kFactorLanes = 4;
  struct Factor {
    V vector;
    int lane;
  };
  using VectorBase::mul;
  static V mul(V a, Factor b) {
    switch (b.lane) {
      case 0: return vmulq_laneq_f32(a, b.vector, 0);
      case 1: return vmulq_laneq_f32(a, b.vector, 1);
      case 2: return vmulq_laneq_f32(a, b.vector, 2);
      default: return vmulq_laneq_f32(a, b.vector, 3);
    }
  }
  static V fma(V a, Factor b, V c) {
    switch (b.lane) {
      case 0: return vfmaq_laneq_f32(c, a, b.vector, 0);
      case 1: return vfmaq_laneq_f32(c, a, b.vector, 1);
      case 2: return vfmaq_laneq_f32(c, a, b.vector, 2);
      default: return vfmaq_laneq_f32(c, a, b.vector, 3);
    }
  }
  static V broadcast(Factor x) {
    switch (x.lane) {
      case 0: return vdupq_laneq_f32(x.vector, 0);
      case 1: return vdupq_laneq_f32(x.vector, 1);
      case 2: return vdupq_laneq_f32(x.vector, 2);
      default: return vdupq_laneq_f32(x.vector, 3);
    }
  }
  // A word in a register. Two instructions make the mask of any vector from it.
  using Word = uint8x16_t;
  static Word word(const uint64_t* p) { return vreinterpretq_u8_u64(vld1q_dup_u64(p)); }
  // Return the mask of vector number `index` of a block: the lanes whose bits in `word` are set.
  static M mask(Word word, int index) {
    const uint8x16_t byte = vqtbl1q_u8(word, vld1q_u8(kFloatLanes.byte[index]));
    return vtstq_u32(vreinterpretq_u32_u8(byte), vld1q_u32(kFloatLanes.bit[index]));
  }
  static M mask(const uint64_t* p, int index) {
    const uint8x16_t byte = vld1q_dup_u8(reinterpret_cast<const uint8_t*>(p) + index / 2);
    return vtstq_u32(vreinterpretq_u32_u8(byte), vld1q_u32(kFloatLanes.bit[index]));
  }
  static M less(V a, V b) { return vcltq_f32(a, b); }
  static M less_equal(V a, V b) { return vcleq_f32(a, b); }
  // Return the lanes where `code` is in an interval: code - lower <= width, modulo 2^16.
  static M within(const uint16_t* lower, const uint16_t* width, uint16_t code) {
    return within(lower, width, vdup_n_u16(code));
  }
  // Return the lanes whose own code is in their interval.
  static M within(const uint16_t* lower, const uint16_t* width, const uint16_t* codes) {
    return within(lower, width, vld1_u16(codes));
  }
  static M within(const uint16_t* lower, const uint16_t* width, uint16x4_t codes) {
    const uint16x4_t x = vsub_u16(codes, vld1_u16(lower));
    return vreinterpretq_u32_s32(vmovl_s16(vreinterpret_s16_u16(vcle_u16(x, vld1_u16(width)))));
  }
  // Return a bit for each lane of a mask, the first lane lowest.
  static uint32_t bits(M m) {
    const uint32x4_t bit = {1, 2, 4, 8};
    return vaddvq_u32(vandq_u32(m, bit));
  }
  static V select(M m, V off, V on) { return vbslq_f32(m, on, off); }
  static V select_or_zero(M m, V on) {
    return vreinterpretq_f32_u32(vandq_u32(m, vreinterpretq_u32_f32(on)));
  }
  // The source bytes of each lane. The source bytes of a negative source lane are beyond the vector, which
  // gives zero.
  using Permutation = uint8x16_t;
  static Permutation permutation(const int32_t* from) {
    return bytes_of(vreinterpretq_u32_s32(vld1q_s32(from)));
  }
  static V permute(Permutation p, V x) {
    return vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(x), p));
  }
  // Indices of a table, assembled from bits or counted.
  using IndexVector = uint32x4_t;
  static IndexVector no_bits() { return vdupq_n_u32(0); }
  static IndexVector add_where(IndexVector x, M lanes, int n) {
    return vmlsq_u32(x, lanes, vdupq_n_u32(static_cast<uint32_t>(n)));  // lanes are -1 or 0
  }
  using VectorBase::store;
  static void store(uint32_t* p, IndexVector x) { vst1q_u32(p, x); }
  static IndexVector with_bit(IndexVector x, M lanes, int bit) {
    return vorrq_u32(x, vandq_u32(lanes, vdupq_n_u32(1u << bit)));
  }
  static IndexVector without_bit(IndexVector x, int bit) { return vbicq_u32(x, vdupq_n_u32(1u << bit)); }
  // Look up elements of a table in 2^kVectors registers. The indices must be smaller than the table.
  static constexpr int kMostTableVectors = 3;
  template <int kVectors>
  static V take(const V* table, IndexVector x) {
    uint8x16_t bytes[1 << kVectors];
    for (int i = 0; i < 1 << kVectors; ++i) bytes[i] = vreinterpretq_u8_f32(table[i]);
    return vreinterpretq_f32_u8(table_bytes<kVectors>(bytes, bytes_of(x)));
  }
  static constexpr bool kGathers = false;
  static V take(const T* table, IndexVector x) {
    V v = vld1q_dup_f32(table + vgetq_lane_u32(x, 0));
    v = vld1q_lane_f32(table + vgetq_lane_u32(x, 1), v, 1);
    v = vld1q_lane_f32(table + vgetq_lane_u32(x, 2), v, 2);
    return vld1q_lane_f32(table + vgetq_lane_u32(x, 3), v, 3);
  }

 private:
  // Return 4 x, 4 x + 1, 4 x + 2 and 4 x + 3 for each lane.
  static uint8x16_t bytes_of(IndexVector x) {
    return vreinterpretq_u8_u32(vmlaq_u32(vdupq_n_u32(0x03020100), x, vdupq_n_u32(0x04040404)));
  }
};

struct DoubleVector : skshap::VectorBase<double, 2> {
  using M = uint64x2_t;
  static constexpr int kRegisters = 32;
  static V set1(T x) { return vdupq_n_f64(x); }
  static V fma(V a, V b, V c) { return vfmaq_f64(c, a, b); }
  static constexpr int kFactorLanes = 2;
  struct Factor {
    V vector;
    int lane;
  };
  using VectorBase::mul;
  static V mul(V a, Factor b) {
    return b.lane ? vmulq_laneq_f64(a, b.vector, 1) : vmulq_laneq_f64(a, b.vector, 0);
  }
  static V fma(V a, Factor b, V c) {
    return b.lane ? vfmaq_laneq_f64(c, a, b.vector, 1) : vfmaq_laneq_f64(c, a, b.vector, 0);
  }
  static V broadcast(Factor x) {
    return x.lane ? vdupq_laneq_f64(x.vector, 1) : vdupq_laneq_f64(x.vector, 0);
  }
  // A word in both lanes. One instruction makes the mask of any vector from it.
  using Word = uint64x2_t;
  static Word word(const uint64_t* p) { return vld1q_dup_u64(p); }
  static M mask(Word word, int index) { return vtstq_u64(word, vld1q_u64(kDoubleLanes.bit[index])); }
  static M mask(const uint64_t* p, int index) { return mask(word(p), index); }
  static M less(V a, V b) { return vcltq_f64(a, b); }
  static M less_equal(V a, V b) { return vcleq_f64(a, b); }
  static M within(const uint16_t* lower, const uint16_t* width, uint16_t code) {
    const uint16_t codes[] = {code, code};
    return within(lower, width, codes);
  }
  static M within(const uint16_t* lower, const uint16_t* width, const uint16_t* codes) {
    const uint64x2_t x = {static_cast<uint16_t>(codes[0] - lower[0]),
                          static_cast<uint16_t>(codes[1] - lower[1])};
    const uint64x2_t most = {width[0], width[1]};
    return vcleq_u64(x, most);
  }
  static uint32_t bits(M m) {
    const uint64x2_t bit = {1, 2};
    return static_cast<uint32_t>(vaddvq_u64(vandq_u64(m, bit)));
  }
  static V select(M m, V off, V on) { return vbslq_f64(m, on, off); }
  static V select_or_zero(M m, V on) {
    return vreinterpretq_f64_u64(vandq_u64(m, vreinterpretq_u64_f64(on)));
  }
  using Permutation = uint8x16_t;
  static Permutation permutation(const int32_t* from) {
    return bytes_of(vreinterpretq_u64_s64(vmovl_s32(vld1_s32(from))));
  }
  static V permute(Permutation p, V x) {
    return vreinterpretq_f64_u8(vqtbl1q_u8(vreinterpretq_u8_f64(x), p));
  }
  using IndexVector = uint64x2_t;
  static IndexVector no_bits() { return vdupq_n_u64(0); }
  static IndexVector add_where(IndexVector x, M lanes, int n) {
    return vaddq_u64(x, vandq_u64(lanes, vdupq_n_u64(static_cast<uint64_t>(n))));
  }
  using VectorBase::store;
  static void store(uint32_t* p, IndexVector x) { vst1_u32(p, vmovn_u64(x)); }
  static IndexVector with_bit(IndexVector x, M lanes, int bit) {
    return vorrq_u64(x, vandq_u64(lanes, vdupq_n_u64(uint64_t{1} << bit)));
  }
  static IndexVector without_bit(IndexVector x, int bit) {
    return vbicq_u64(x, vdupq_n_u64(uint64_t{1} << bit));
  }
  static constexpr int kMostTableVectors = 3;
  template <int kVectors>
  static V take(const V* table, IndexVector x) {
    uint8x16_t bytes[1 << kVectors];
    for (int i = 0; i < 1 << kVectors; ++i) bytes[i] = vreinterpretq_u8_f64(table[i]);
    return vreinterpretq_f64_u8(table_bytes<kVectors>(bytes, bytes_of(x)));
  }
  static constexpr bool kGathers = false;
  static V take(const T* table, IndexVector x) {
    const V low = vld1q_dup_f64(table + vgetq_lane_u64(x, 0));
    return vld1q_lane_f64(table + vgetq_lane_u64(x, 1), low, 1);
  }

 private:
  // Return 8 x to 8 x + 7 for each lane. Only the lowest byte of x is used.
  static uint8x16_t bytes_of(IndexVector x) {
    constexpr uint64_t kFirst = 0, kSecond = 0x0808080808080808, kByte = 0x0706050403020100;
    const uint8x16_t lowest = vreinterpretq_u8_u64(vcombine_u64(vcreate_u64(kFirst), vcreate_u64(kSecond)));
    const uint8x16_t repeated = vqtbl1q_u8(vreinterpretq_u8_u64(x), lowest);
    return vmlaq_u8(vreinterpretq_u8_u64(vdupq_n_u64(kByte)), repeated, vdupq_n_u8(8));
  }
};

// The numbers of the 64 rows of a block. They are sums modulo 2^16.
class BlockIndex {
 public:
  // Add a number to the numbers of some rows.
  void add(uint64_t rows, uint16_t number) {
    add_parts(vmovl_u8(vcreate_u8(rows)), vdupq_n_u16(number), std::make_integer_sequence<int, 8>());
  }
  // Add a number to the rows whose codes are beyond an operand.
  void add_beyond(const uint16_t* codes, uint16_t operand, uint16_t number) {
    const uint16x8_t limit = vdupq_n_u16(operand), x = vdupq_n_u16(number);
    for (int i = 0; i < 8; ++i) part_[i] = vmlsq_u16(part_[i], vcgtq_u16(vld1q_u16(codes + 8 * i), limit), x);
  }
  void store(uint16_t* out) const {
    for (int i = 0; i < 8; ++i) vst1q_u16(out + 8 * i, part_[i]);
  }

 private:
  // Compare byte i of the rows, which is lane i of `bytes`. The lanes of a comparison are -1 or 0.
  template <int i>
  void add_part(uint16x8_t bytes, uint16x8_t x) {
    constexpr uint64_t kLow = 0x0008000400020001, kHigh = 0x0080004000200010;
    const uint16x8_t bit = vreinterpretq_u16_u64(vcombine_u64(vcreate_u64(kLow), vcreate_u64(kHigh)));
    part_[i] = vmlsq_u16(part_[i], vtstq_u16(vdupq_laneq_u16(bytes, i), bit), x);
  }
  template <int... i>
  void add_parts(uint16x8_t bytes, uint16x8_t x, std::integer_sequence<int, i...>) {
    (add_part<i>(bytes, x), ...);
  }

  uint16x8_t part_[8] = {};
};

// Return a bit for each of 64 bytes, each of which is 0 or 255.
inline uint64_t bits_of(const uint8x16_t (&bytes)[4]) {
  const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
  uint8x16_t part[4];
  for (int i = 0; i < 4; ++i) part[i] = vandq_u8(bytes[i], bit);
  // Each addition halves the number of bytes. The bits that are added to a byte are all different.
  const uint8x16_t quarters = vpaddq_u8(vpaddq_u8(part[0], part[1]), vpaddq_u8(part[2], part[3]));
  return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(quarters, quarters)), 0);
}

// Return a bit for each of 64 codes c: whether (c + bias) <= operand, computed in the width of the codes.
inline uint64_t passes(const uint16_t* codes, uint32_t bias, uint32_t operand) {
  const uint16x8_t b = vdupq_n_u16(static_cast<uint16_t>(bias));
  const uint16x8_t limit = vdupq_n_u16(static_cast<uint16_t>(operand));
  uint8x16_t bytes[4];
  for (int i = 0; i < 4; ++i) {
    const uint16x8_t low = vcleq_u16(vaddq_u16(vld1q_u16(codes + 16 * i), b), limit);
    const uint16x8_t high = vcleq_u16(vaddq_u16(vld1q_u16(codes + 16 * i + 8), b), limit);
    bytes[i] = vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
  }
  return bits_of(bytes);
}

inline uint64_t passes(const uint32_t* codes, uint32_t bias, uint32_t operand) {
  const uint32x4_t b = vdupq_n_u32(bias), limit = vdupq_n_u32(operand);
  uint8x16_t bytes[4];
  for (int i = 0; i < 4; ++i) {
    uint16x8_t half[2];
    for (int j = 0; j < 2; ++j) {
      const uint32_t* const p = codes + 16 * i + 8 * j;
      const uint32x4_t low = vcleq_u32(vaddq_u32(vld1q_u32(p), b), limit);
      const uint32x4_t high = vcleq_u32(vaddq_u32(vld1q_u32(p + 4), b), limit);
      half[j] = vuzp1q_u16(vreinterpretq_u16_u32(low), vreinterpretq_u16_u32(high));
    }
    bytes[i] = vuzp1q_u8(vreinterpretq_u8_u16(half[0]), vreinterpretq_u8_u16(half[1]));
  }
  return bits_of(bytes);
}

}  // namespace
