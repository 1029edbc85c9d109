// The tests of the tree of a unit: written by cells/builder.cpp, read by simd/cell_kernels-inl.h.
#pragma once

#include <cstdint>

#include "plan/program.h"

namespace skshap {

// A test of a column of the unit. Like a DecideNode, but small: a unit has few columns and nodes.
struct CellTest {
  uint32_t operand;
  uint16_t column, previous;
};

// The flags of a test. The lowest bits are those of a DecideNode. Then follow the bias of a DecideNode, and
// which children are inner nodes. If one child is a leaf, it is the right one.
constexpr uint8_t kDecideFlags = kCategorical | kFlip | kPreviousRight;
constexpr int kBiasShift = 3;
constexpr uint8_t kBiasFlags = 3 << kBiasShift, kLeftInner = 32, kRightInner = 64;

// The codes beyond `low`, up to `high`, and perhaps the code for missing values: the rows that satisfy all
// tests of a numeric column above a unit. They are the codes c with c + bias <= width modulo 2^16, and what
// `kind` says. A box takes the place of an operand and a bias.
struct CellBox {
  enum Kind : uint8_t { kCodes, kAlsoMissing, kOnlyMissing, kNothing };

  uint16_t bias, width;
  Kind kind;

  static CellBox between(int32_t low, int32_t high, bool has_missing) {
    constexpr int32_t kLargest = 0xfffe;  // code of a number
    if (high > kLargest) high = kLargest;
    if (low >= high) return {0, 0, has_missing ? kOnlyMissing : kNothing};
    const auto box = [](int32_t first, int32_t last, Kind kind) {
      return CellBox{static_cast<uint16_t>(-first), static_cast<uint16_t>(last - first), kind};
    };
    if (!has_missing) return box(low + 1, high, kCodes);
    if (high == kLargest) return box(low + 1, high + 1, kCodes);
    if (low < 0) return box(-1, high, kCodes);  // the code for missing values is -1
    return box(low + 1, high, kAlsoMissing);
  }
  static CellBox of(uint32_t operand, uint8_t kind) {
    return {static_cast<uint16_t>(operand), static_cast<uint16_t>(operand >> 16), static_cast<Kind>(kind)};
  }
  uint32_t operand() const { return bias | static_cast<uint32_t>(width) << 16; }
};

}  // namespace skshap
