// The amount of work for the trees of a plan. The cost model (skshapgpu/_engine/costs/trees.py) uses it.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tables/table_builder.h"

namespace skshap {

// Trees with the same number of quadrature nodes, which are either all walked or all have tables.
struct TreeGroup {
  bool tables;
  TableCost cost;
};

// Return the groups by ascending number of nodes.
std::vector<TreeGroup> tree_groups(const Plan& plan);

}  // namespace skshap
