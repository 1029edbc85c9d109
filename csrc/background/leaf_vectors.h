// The contributions of a leaf to the features of its path and to their pairs, against background data. They
// are computed from sums over the subsets of a pattern.
//
// tables/pattern_vectors.h goes through the patterns b of the background data. Such a b must have all
// features that x lacks. So for a given x, only the subsets of x remain to choose, and sums over the
// background rows become sums over these subsets. See docs/mathematics.md.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tables/pattern_vectors.h"

namespace skshap {

// The most features of a path whose subsets are summed. With more features, the sums would take too much
// memory.
constexpr uint32_t kMostSubsetBits = 12;

class LeafVectors {
 public:
  // Prepare for an index. The number of a pair is half of the interaction, as in plan/plan.h.
  explicit LeafVectors(Index index) : index_(index) {}

  // Sum over the subsets of each x, for a path of n features with background weights[pattern].
  void sum_up(uint32_t n, const double* weights);

  // Write the numbers of x times a value, computed from these sums.
  template <class T>
  void write(size_t x, double value, T* out) const;

  // Return whether to sum over subsets for a path of n features, instead of going through the patterns of the
  // background, given the number of these patterns.
  static bool prefers_sums(uint32_t n, size_t n_patterns);

  // Return the bytes allocated for paths of at most `longest` features.
  static size_t bytes(const Plan& plan, uint32_t longest);

 private:
  // Sums over the subsets of x. The derivatives by one feature and by two features are computed from these
  // sums.
  enum Sum { kOn, kLess, kOff, kPairOn, kPairLess, kPairLeast, kMixed, kMixedLess, kPairOff, kSums };

  // Factors for integrating over a path of n features.
  struct Rule {
    std::vector<double> coefficients;  // [node][sum]
    std::vector<double> on;            // [node][pattern]: t^|x|
    std::vector<double> off;  // [node][3][pattern]: (1 - t)^(n - |x|); with the exponent less 1; and less 2
  };

  const Rule& rule(uint32_t n);
  const double* sum(Sum which) const { return sums_.data() + (static_cast<size_t>(which) << n_); }

  const Index index_;
  uint32_t n_ = 0;  // of the path whose sums are held
  Rule rules_[kMostSubsetBits + 1];
  std::vector<double> scratch_, sums_;
};

}  // namespace skshap
