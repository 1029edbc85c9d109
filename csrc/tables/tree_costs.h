// How much work the trees of a plan are: what the cost model (costs.py) weighs.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tables/table_builder.h"

namespace skshap {

// Trees with as many quadrature nodes, all of which are walked or all of which have tables.
struct TreeGroup {
  bool tables;
  TableCost cost;
};

// By ascending number of nodes.
std::vector<TreeGroup> tree_groups(const Plan& plan);

// What tables would take for the trees that are walked, by ascending number of nodes. Trees are left out with
// all others of as many nodes if one has a longer path than tables allow for.
std::vector<TreeGroup> possible_tables(const Plan& plan);

}  // namespace skshap
