#include "background/group_targets.h"

#include <algorithm>

namespace skshap {

void GroupTargets::find(const TreeGroups& groups, const TreeGroups::Group& group) {
  pairs_.clear();
  groups.list_features(group, features_);
  std::sort(features_.begin(), features_.end());
  const uint32_t n = static_cast<uint32_t>(features_.size());
  for (uint32_t i = 0; i < n; ++i) place_[features_[i]] = i;
  uint32_t together[kLeafBits] = {};  // by feature: the features that are on the path of a leaf with it
  for (size_t i = group.leaves; i < group.leaves_end; ++i) {
    const PathStep* const path = groups.steps.data() + groups.leaves[i].path;
    uint32_t places = 0;
    for (uint32_t f = 0; f < groups.leaves[i].n_features; ++f)
      places |= uint32_t{1} << place_[path[f].feature];
    for (uint32_t rest = places; rest; rest &= rest - 1) together[__builtin_ctz(rest)] |= places;
  }
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = i + 1; j < n; ++j) {
      if (!(together[i] >> j & 1)) continue;
      pair_place_[i][j] = static_cast<uint32_t>(n + pairs_.size());
      pairs_.push_back({features_[i], features_[j]});
    }
}

void GroupTargets::list_leaf(const PathStep* path, uint32_t n, std::vector<uint32_t>& out) const {
  out.clear();
  for (uint32_t i = 0; i < n; ++i) out.push_back(place_[path[i].feature]);
  for (uint32_t i = 0; i < n; ++i)
    for (uint32_t j = i + 1; j < n; ++j) out.push_back(pair_place_[out[i]][out[j]]);
}

}  // namespace skshap
