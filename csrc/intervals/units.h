// Divides trees into units: leaves below a node, few enough thresholds on their paths for a table.
//
// Against background data, trees have tables already (plan/tables.h), of the leaves below some nodes. The
// entries of a unit are sums of theirs, so each of these tables belongs to one unit as a whole.
#pragma once

#include <cstdint>
#include <vector>

#include "intervals/digits.h"
#include "plan/plan.h"

namespace skshap {

struct Unit {
  size_t tree;                  // in Plan::trees
  int32_t node;                 // the root of its leaves, as in Plan::children
  uint32_t n_nodes;             // inner nodes of its paths, from the root of the tree on
  size_t digits, n_digits;      // in Units::digits, ascending by column
  uint32_t n_entries;           // the product of the numbers of classes
  uint64_t thresholds;          // a bit for each threshold and category test, by its hash
  size_t lookups, lookups_end;  // in Tables::lookups, with background data: its tables there
};

struct Units {
  Digits numbers;
  std::vector<Digit> digits;
  std::vector<Unit> units;            // tree by tree
  std::vector<size_t> first_of_tree;  // by tree, and one more

  bool has(size_t tree) const { return first_of_tree[tree] < first_of_tree[tree + 1]; }
};

// Divide all trees of a plan into units whose tables have at most most_entries entries. A tree has none if a
// leaf needs a larger table, if units would have fewer than least_leaves leaves on average, or if it tests a
// column of too many categories, or is not chosen (by tree; empty: all are). With background data, tables may
// be somewhat larger, and a tree has none if one of its leaves has no table.
Units find_units(const Plan& plan, uint32_t most_entries, double least_leaves,
                 const std::vector<bool>& chosen = {});

// Return the output of a tree; -1: each leaf holds all outputs.
int32_t output_of(const Plan& plan, size_t tree);
const Chunk& chunk_of(const Plan& plan, size_t tree);

// Return the tables that a tree has against background data.
const TableTree& table_tree_of(const Plan& plan, size_t tree);

}  // namespace skshap
