// The contributions of a leaf to the features of its path and to their pairs, against background data, by
// sums over the subsets of a pattern.
//
// tables/pattern_vectors.h goes through the patterns b of the background data. Such a b must have all
// features that x lacks, so for a given x only the subsets of x are left, and sums over the background rows
// are sums over these. See docs/mathematics.md.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tables/pattern_vectors.h"

namespace skshap {

// The most features of a path whose subsets are summed: more would take too much memory.
constexpr uint32_t kMostSubsetBits = 12;

class LeafVectors {
 public:
  // Prepare for an index and order. Pairs get half of their interaction, as in plan/plan.h.
  LeafVectors(Index index, int order);

  // Sum over the subsets of all x, for a path of n features with background weights[pattern].
  void sum_up(uint32_t n, const double* weights);

  // Write the numbers of x from these sums, times a value.
  template <class T>
  void write(size_t x, double value, T* out) const;

  // Return whether to sum over subsets for a path of n features, given the number of patterns in the
  // background, instead of going through these.
  static bool prefers_sums(uint32_t n, size_t n_patterns);

  // Return the bytes allocated for paths of at most `longest` features.
  static size_t bytes(const Plan& plan, uint32_t longest);

 private:
  // Sums over the subsets of x, from which the derivatives by one and by two features are computed.
  enum Sum { kOn, kLess, kOff, kPairOn, kPairLess, kPairLeast, kMixed, kMixedLess, kPairOff, kSums };

  // Factors for integrating over a path of n features.
  struct Rule {
    std::vector<double> coefficients;  // [node][sum]
    std::vector<double> on;            // [node][pattern]: t^|x|
    std::vector<double> off;  // [node][3][pattern]: (1 - t)^(n - |x|), and with the exponent less by 1, 2
  };

  const Rule& rule(uint32_t n);
  const double* sum(Sum which) const { return sums_.data() + (static_cast<size_t>(which) << n_); }

  const Index index_;
  const int order_, n_sums_;
  uint32_t n_ = 0;  // of the path whose sums are held
  Rule rules_[kMostSubsetBits + 1];
  std::vector<double> scratch_, sums_;
};

}  // namespace skshap
