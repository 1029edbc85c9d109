// Walks for Owen values that take fewer nodes than exact quadrature needs.
//
// The values of n features of a group on a path need n / 2 nodes for the integral of the group. For an odd n,
// rounding n / 2 down makes an error, but the same error for all n features: Gauss-Legendre quadrature with K
// nodes errs by a constant times the coefficient of degree 2 K = n - 1, and this coefficient is the product,
// over all n features, of the difference of the one fraction and the zero fraction. Suppose that only paths
// with all features of the group err. Then the walk in which the groups are players tells the error, because
// that walk has the exact sum of the features' values. Such walks are balanced: the value of a feature is its
// own sum, plus an equal share of the sum of its group, minus an equal share of the sums of all features of
// the group.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace skshap {

class Balance {
 public:
  // Take the group of each feature of a plan.
  explicit Balance(const std::vector<int32_t>& groups)
      : groups_(groups), features_(groups.empty() ? 0 : 1 + *std::max_element(groups.begin(), groups.end())) {
    for (size_t feature = 0; feature < groups.size(); ++feature)
      features_[groups[feature]].push_back(static_cast<int32_t>(feature));
  }

  int32_t n_groups() const { return static_cast<int32_t>(features_.size()); }

  // Return the number of features of a group if its walks may be balanced, else 0.
  int32_t size_of(int32_t group) const {
    const size_t n = features_[group].size();
    return n % 2 == 1 && n > 1 && n <= kMostFeatures ? static_cast<int32_t>(n) : 0;
  }

  // Call add(feature, weight) for each feature that gets a share of the sum of a player of a balanced chunk.
  // The player is a group or, if the features of its group are apart, a feature.
  template <class Add>
  void share(const Chunk& chunk, int32_t player, const Add& add) const {
    const int32_t n_features = static_cast<int32_t>(groups_.size());
    const bool is_group = player >= n_features;
    if (is_group == (chunk.n_apart > 0)) return;
    const int32_t group = is_group ? player - n_features : groups_[player];
    const int32_t size = size_of(group);
    for (int32_t i = 0; i < size; ++i) add(features_[group][i], (is_group ? 1.0 : -1.0) / size);
  }

 private:
  // Groups larger than this gain little, and the number of shares of a chunk grows with the square of their
  // size.
  static constexpr size_t kMostFeatures = 9;

  const std::vector<int32_t>& groups_;
  std::vector<std::vector<int32_t>> features_;  // by group
};

}  // namespace skshap
