// The cost of tables that are not laid out yet, and checks of whether all trees can have tables.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tables/tree_groups.h"

namespace skshap {

// The cost of the tables of all trees with the same number of Gauss-Legendre nodes. The walk may use another
// rule, but this number still stands for the length of the paths.
struct TableCost {
  int n_nodes = 0;
  size_t n_trees = 0, n_leaves = 0, n_lookups = 0, bytes = 0;
  // Sums that a row adds to after the lookups, for trees that share them with no other tree.
  size_t n_places = 0;
  uint32_t longest_path = 0;
  size_t n_walked = 0;  // leaves that are walked: fewer than n_leaves if trees were merged, 0 with tables
};

// Return the costs of all trees without tables, in ascending order of the number of quadrature nodes.
std::vector<TableCost> table_costs(const Plan& plan, uint32_t leaf_bits);
// Return the bytes of all tables that the limits allow.
size_t tables_bytes(const Plan& plan, const TableLimits& limits);
// Return an upper bound of the number of distinct patterns of n_background rows: on a path of n_features
// features, or at all leaves of a plan that have no table within the limits.
size_t most_patterns(uint32_t n_features, size_t n_background);
size_t most_patterns(const Plan& plan, const TableLimits& limits, size_t n_background);
// Bytes of a pattern and its weight.
constexpr size_t kPatternBytes = 16;
// Return the largest number of features on a path.
uint32_t longest_path(const Plan& plan);

// Throw TableMemoryError if the tables that all trees must have need more bytes than is allowed.
void require_room(size_t needed, size_t table_bytes);

}  // namespace skshap
