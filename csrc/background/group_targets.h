// The numbers in an entry of a group's table: one for each feature of the group's leaves, and one for each
// pair of features that share a leaf's path.
#pragma once

#include <vector>

#include "tables/tree_groups.h"

namespace skshap {

class GroupTargets {
 public:
  explicit GroupTargets(const Plan& plan) : place_(plan.features.size()) {}

  // List the features and the pairs of a group, both in ascending order. The group has at most kLeafBits
  // features.
  void find(const TreeGroups& groups, const TreeGroups::Group& group);

  const std::vector<int32_t>& features() const { return features_; }
  const std::vector<FeaturePair>& pairs() const { return pairs_; }
  size_t size() const { return features_.size() + pairs_.size(); }

  // List the places of a leaf's numbers in an entry of the group, features first. The features of the leaf's
  // path, of which there are n, ascend, and so do the places.
  void list_leaf(const PathStep* path, uint32_t n, std::vector<uint32_t>& out) const;

 private:
  std::vector<int32_t> features_;
  std::vector<FeaturePair> pairs_;
  std::vector<uint32_t> place_;  // by used feature: its place in features_
  uint32_t pair_place_[kLeafBits][kLeafBits];
};

}  // namespace skshap
