// The cost of tables that are not laid out yet, and checks whether all trees can have them.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tables/tree_groups.h"

namespace skshap {

// The cost of tables of all trees with the same number of quadrature nodes, by the rule of Gauss and
// Legendre: where the walk uses another one, the number still stands for the length of the paths.
struct TableCost {
  int n_nodes;
  size_t n_trees, n_leaves, n_lookups, bytes;
  size_t n_places;  // sums that a row adds to after the lookups, for trees that do not share them with others
  uint32_t longest_path;
  size_t n_walked = 0;  // leaves that are walked: fewer than n_leaves if trees were merged, none with tables
};

// Return the costs of all trees without tables, in ascending order of their numbers of quadrature nodes.
std::vector<TableCost> table_costs(const Plan& plan, uint32_t leaf_bits);
// Return the bytes of all tables that the limits allow.
size_t tables_bytes(const Plan& plan, const TableLimits& limits);
// Return the most distinct patterns that so many background rows have on a path of so many features, and
// those at all leaves that have no table by the limits.
size_t most_patterns(uint32_t n_features, size_t n_background);
size_t most_patterns(const Plan& plan, const TableLimits& limits, size_t n_background);
// Bytes of a pattern and its weight.
constexpr size_t kPatternBytes = 16;
// Return the largest number of features on a path.
uint32_t longest_path(const Plan& plan);

// Throw std::invalid_argument if a path has more features than tables have bits, and TableMemoryError if the
// tables that all trees must have need more bytes than they may take.
void require_short_paths(const Plan& plan);
void require_room(size_t needed, size_t table_bytes);

}  // namespace skshap
