// The contributions of a leaf to the features of its path and to their pairs, against background data.
//
// Let x be the set of the path's features that the row satisfies, and b that of a background row. The leaf
// counts if x and b together cover all features, those in x only are known and those in b only are unknown;
// see tables/table_builder.h. At t, with p features in x only and q in b only, this has the probability
// t^p (1 - t)^q. Its mixed derivative by two features, integrated over t, is the interaction of the two:
//     both in x only: t^(p - 2) (1 - t)^q,  both in b only: t^p (1 - t)^(q - 2),
//     one each:      -t^(p - 1) (1 - t)^(q - 1).
// b must have all features that x lacks, so for a given x only the subsets of x are left, and sums over the
// background rows are sums over these. See docs/mathematics.md.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace skshap {

// Return how many numbers a leaf has whose path has n features: one for each feature, then, for order 2, one
// for each pair, in ascending order.
constexpr uint32_t leaf_numbers(int order, uint32_t n) { return n + (order > 1 ? n * (n - 1) / 2 : 0); }

// Return the position of the pair i < j among all pairs of n features.
constexpr uint32_t pair_number(uint32_t n, uint32_t i, uint32_t j) {
  return i * (2 * n - i - 1) / 2 + j - i - 1;
}

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

  // Write the numbers of x by going through the background's patterns, for any n.
  template <class T>
  void write(uint32_t n, uint64_t x, const uint64_t* patterns, const double* weights, size_t n_patterns,
             double value, T* out);

  // Return whether to sum over subsets for a path of n features, given the number of patterns in the
  // background.
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
  double moment(uint32_t a, uint32_t b) const { return moments_[a * kMoments + b]; }
  double pair_moment(uint32_t a, uint32_t b) const;

  static constexpr uint32_t kMoments = kMaxPathFeatures + 1;

  const Index index_;
  const int order_, n_sums_;
  uint32_t n_ = 0;  // of the path whose sums are held
  Rule rules_[kMostSubsetBits + 1];
  std::vector<double> moments_;  // of t^a (1 - t)^b
  std::vector<double> scratch_, sums_, numbers_;
};

}  // namespace skshap
