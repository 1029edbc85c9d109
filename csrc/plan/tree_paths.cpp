#include "plan/tree_paths.h"

#include <algorithm>

namespace skshap {

std::vector<int32_t> column_features(const Plan& plan) {
  std::vector<int32_t> features;
  for (const Column& column : plan.columns) {
    const auto position = std::lower_bound(plan.features.begin(), plan.features.end(), column.feature);
    features.push_back(static_cast<int32_t>(position - plan.features.begin()));
  }
  return features;
}

}  // namespace skshap
