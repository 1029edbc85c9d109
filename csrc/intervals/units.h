// Divides trees into units. A unit consists of the leaves below a node, with few enough thresholds on their
// paths for a table.
//
// Against background data, trees have tables already (plan/tables.h), each for the leaves below some node.
// The entries of a unit are sums of entries of such tables, so each of them belongs to one unit as a whole.
#pragma once

#include <cstdint>
#include <vector>

#include "intervals/digits.h"
#include "plan/plan.h"

namespace skshap {

struct Unit {
  size_t tree;                          // in Plan::trees
  int32_t node;                         // the root of the subtree of its leaves, as in Plan::children
  int32_t parent;                       // of this node, or -1
  uint32_t n_nodes;                     // inner nodes of its paths, from the root of the tree
  size_t digits, n_digits;              // in Units::digits, ascending by column
  uint32_t n_entries;                   // the product of the numbers of classes
  uint64_t thresholds;                  // a bit for each threshold and category test, by its hash
  size_t lookups = 0, lookups_end = 0;  // with background data: its tables in Tables::lookups

  // Return whether the path to the unit's node goes right at a node above, given the children of the tree's
  // nodes. Inner nodes are in preorder.
  bool is_right_of(int32_t above, const int32_t* children) const {
    const int32_t right = children[2 * above + 1];
    return above == parent ? right == node : right <= parent;
  }
};

struct Units {
  Digits numbers;
  std::vector<Digit> digits;
  std::vector<Unit> units;            // tree by tree
  std::vector<size_t> first_of_tree;  // by tree, and one more

  bool has(size_t tree) const { return first_of_tree[tree] < first_of_tree[tree + 1]; }
  const Digit* digits_of(const Unit& unit) const { return digits.data() + unit.digits; }
};

// Divide the trees of a plan into units whose tables have at most most_entries entries. `chosen` says, by
// tree, whether to divide it; if it is empty, all trees are divided. A tree has no units if a leaf needs a
// larger table, if the units would have fewer than least_leaves leaves on average, or if the tree tests a
// column of too many categories. With background data, tables may be somewhat larger, and a tree has no units
// if one of its leaves has no table.
Units find_units(const Plan& plan, uint32_t most_entries, double least_leaves,
                 const std::vector<bool>& chosen = {});

// Return the tables that a tree has against background data.
const TableTree& table_tree_of(const Plan& plan, size_t tree);

}  // namespace skshap
