// The amount of work for the trees of a plan. The cost model (skshapgpu/_engine/costs/trees.py) uses it.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace skshap {

// The cost of all trees with the same number of Gauss-Legendre nodes. The walk may use another rule, but this
// number still stands for the length of the paths.
struct TableCost {
  int n_nodes = 0;
  size_t n_trees = 0, n_leaves = 0, n_lookups = 0, bytes = 0;
  // Sums that a row adds to after the lookups, for trees that share them with no other tree.
  size_t n_places = 0;
  size_t n_walked = 0;  // leaves that are walked: fewer than n_leaves if trees were merged, 0 with tables

  // Add the lookups of a tree.
  void add_lookups(const Plan& plan, const TableTree& tree);
};

// Trees with the same number of quadrature nodes, which are either all walked or all have tables.
struct TreeGroup {
  bool tables;
  TableCost cost;
};

// Return the groups by ascending number of nodes.
std::vector<TreeGroup> tree_groups(const Plan& plan);

}  // namespace skshap
