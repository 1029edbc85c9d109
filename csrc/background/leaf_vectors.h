// What a leaf gives to the features of its path and to their pairs, against background data.
//
// With x the set of the path's features that the row satisfies and b that of a background row, the leaf is
// worth its value if x and b together are all features, the features in x only are known and those in b only
// are not; see table_builder.h. At t, of the p features only in x and the q only in b, that is t^p (1 - t)^q.
// Its mixed derivative by two features, integrated over t, is the interaction of the two:
//     both only in x: t^(p - 2) (1 - t)^q,  both only in b: t^p (1 - t)^(q - 2),
//     one each:      -t^(p - 1) (1 - t)^(q - 1).
// For a given x all of b but its features in x is known, so that sums over the background are sums over
// subsets of x. See docs/how_it_works.md.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace skshap {

// Numbers of a leaf whose path has n features: one for each, then, of order 2, one for each pair, in
// ascending order.
constexpr uint32_t leaf_numbers(int order, uint32_t n) { return n + (order > 1 ? n * (n - 1) / 2 : 0); }

// Where i < j of n features stand among all pairs.
constexpr uint32_t pair_number(uint32_t n, uint32_t i, uint32_t j) {
  return i * (2 * n - i - 1) / 2 + j - i - 1;
}

// Features of a path whose subsets are summed up: for more it takes too much memory.
constexpr uint32_t kMostSubsetBits = 12;

class LeafVectors {
 public:
  // Pairs have half of their interaction, as in plan.h.
  LeafVectors(Index index, int order);

  // Sums up the subsets of all x, for a path of n features whose background has weights[pattern].
  void sum_up(uint32_t n, const double* weights);

  // The numbers of x by these sums, times a value.
  template <class T>
  void write(size_t x, double value, T* out) const;

  // The same by going through the background's patterns, for any n.
  template <class T>
  void write(uint32_t n, uint64_t x, const uint64_t* patterns, const double* weights, size_t n_patterns,
             double value, T* out);

  // Whether to sum up subsets for a path of n features, given how many patterns the background has.
  static bool prefers_sums(uint32_t n, size_t n_patterns);

  // What it allocates for paths of up to so many features.
  static size_t bytes(const Plan& plan, uint32_t longest);

 private:
  // Sums over the subsets of x, of what the derivatives by a feature and by two are made of.
  enum Sum { kOn, kLess, kOff, kPairOn, kPairLess, kPairLeast, kMixed, kMixedLess, kPairOff, kSums };

  // How a path of n features is integrated.
  struct Rule {
    std::vector<double> coefficients;  // [node][sum]
    std::vector<double> on;            // [node][pattern]: t^|x|
    std::vector<double> off;  // [node][3][pattern]: (1 - t)^(n - |x|), and with an exponent less by 1, 2
  };

  const Rule& rule(uint32_t n);
  const double* sum(Sum which) const { return sums_.data() + (static_cast<size_t>(which) << n_); }
  double moment(uint32_t a, uint32_t b) const { return moments_[a * kMoments + b]; }
  double pair_moment(uint32_t a, uint32_t b) const;

  static constexpr uint32_t kMoments = kMaxPathFeatures + 1;

  const Index index_;
  const int order_, n_sums_;
  uint32_t n_ = 0;  // of the sums
  Rule rules_[kMostSubsetBits + 1];
  std::vector<double> moments_;  // of t^a (1 - t)^b
  std::vector<double> scratch_, sums_, numbers_;
};

}  // namespace skshap
