// Walks for Owen values that take fewer nodes than they need.
//
// The values of n features of a group on a path need n / 2 nodes for the integral of the group. For an odd n,
// rounding down makes an error, but the same one for all n features: Gauss-Legendre quadrature with K nodes
// errs by a constant times the coefficient of degree 2 K = n - 1, and this is the product of the differences
// of one and zero fraction of all n features. So if only paths with all features of the group err, the walk
// in which the groups are players tells the error, because it has the sum of the values. These walks are
// balanced: a feature gets its own sum, an equal share of that of its group, and minus an equal share of
// those of all features of the group.
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

  // Return the number of features of a group, if its walks may be balanced, or else 0.
  int32_t size_of(int32_t group) const {
    const size_t n = features_[group].size();
    return n % 2 == 1 && n > 1 && n <= kMostFeatures ? static_cast<int32_t>(n) : 0;
  }

  // Call add(feature, weight) for each feature that gets a share of the sum of a player of a balanced chunk:
  // of a group, or of a feature if those of its group are apart.
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
  // Larger groups gain little, and the shares of a chunk grow with the square.
  static constexpr size_t kMostFeatures = 9;

  const std::vector<int32_t>& groups_;
  std::vector<std::vector<int32_t>> features_;  // by group
};

}  // namespace skshap
