// The amount of work that the trees of a plan take, for the cost model (skshapgpu/_engine/costs/trees.py).
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tables/table_builder.h"

namespace skshap {

// Trees with the same number of quadrature nodes that are all walked or all have tables.
struct TreeGroup {
  bool tables;
  TableCost cost;
};

// Return the groups by ascending number of nodes.
std::vector<TreeGroup> tree_groups(const Plan& plan);

}  // namespace skshap
