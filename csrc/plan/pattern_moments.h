// The weights of a pair of a row and a background row at a leaf, as integrals. The row alone satisfies p
// features of the leaf's path, and the background row alone satisfies q of them. See docs/mathematics.md.
// From these weights, a leaf without a table has numbers for its features and for pairs of them.
#pragma once

#include <cmath>
#include <vector>

#include "plan/program.h"

namespace skshap {

// Return how many numbers a leaf on a path of n features has: one for each feature; then, for order 2, one
// for each pair, in ascending order.
constexpr uint32_t leaf_numbers(int order, uint32_t n) { return n + (order > 1 ? n * (n - 1) / 2 : 0); }

// Return the position of the pair i < j among all pairs of n features.
constexpr uint32_t pair_number(uint32_t n, uint32_t i, uint32_t j) {
  return i * (2 * n - i - 1) / 2 + j - i - 1;
}

// The integrals of t^a (1 - t)^b for a + b <= kMaxPathFeatures. For pairs of features, half of the integrals
// with the weight of pair_weight as well. For Banzhaf values, the integrands are evaluated at t = 1/2.
struct PatternMoments {
  static constexpr uint32_t kSize = kMaxPathFeatures + 1;

  explicit PatternMoments(Index index) : values(kSize * kSize), pairs(kSize * kSize, 0.0) {
    for (uint32_t a = 0; a < kSize; ++a)
      for (uint32_t b = 0; b < kSize; ++b) {
        double& moment = values[a * kSize + b];
        if (index == Index::kBanzhaf)
          moment = std::ldexp(1.0, -static_cast<int>(a + b));
        else  // a! b! / (a + b + 1)!
          moment = b ? values[a * kSize + b - 1] * b / (a + b + 1) : 1.0 / (a + 1);
      }
    for (uint32_t a = 0; a < kSize; ++a)
      for (uint32_t b = 0; b + 1 < kSize; ++b)
        pairs[a * kSize + b] =
            index == Index::kTaylor ? values[a * kSize + b + 1] : values[a * kSize + b] / 2;
  }

  double value(uint32_t a, uint32_t b) const { return values[a * kSize + b]; }
  double pair(uint32_t a, uint32_t b) const { return pairs[a * kSize + b]; }

  std::vector<double> values, pairs;  // [a][b]
};

}  // namespace skshap
