// What tables take before they are laid out, and whether all trees can have them.
#pragma once

#include <vector>

#include "plan.h"
#include "tree_groups.h"

namespace skshap {

// What tables of the trees with one number of quadrature nodes would take; see also longest_path.
struct TableCost {
  int n_nodes;
  size_t n_trees, n_leaves, n_look_ups, bytes;
  size_t n_places;  // sums that a row adds to after the look-ups, of trees that do not share them with others
  uint32_t longest_path;
};

// Of all trees that have none yet, by ascending number of nodes.
std::vector<TableCost> table_costs(const Plan& plan, uint32_t leaf_bits);
// Bytes of all tables that these limits allow.
size_t tables_bytes(const Plan& plan, const TableLimits& limits);
// The most features on a path.
uint32_t longest_path(const Plan& plan);

// Throws std::invalid_argument if a path has more features than tables have bits, and TableMemoryError if
// tables that all trees must have need more bytes than they may take.
void require_short_paths(const Plan& plan);
void require_room(size_t needed, size_t table_bytes);

}  // namespace skshap
