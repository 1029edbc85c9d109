// Plan -> layout of its tables: which leaves share a table, where the table begins, and which bits form its
// index.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tables/tree_groups.h"

namespace skshap {

// The largest number of positions of a batch of several trees: as many as fit into a vector.
constexpr size_t kBatchPositions = 16;

// A tree that uses the same split throughout each level. `nodes` has one node of each level.
struct LevelTree {
  size_t chunk, tree;  // in Plan::chunks and Plan::trees
  std::vector<int32_t> nodes;
};

// Lay out the tables of all trees: everything except their numbers.
void lay_out_tables(Plan& plan, const TableLimits& limits);

// Lay out tables for some trees, in the order of the plan. Each tree has a single table, whose index is
// formed by the row's decisions on each level.
void lay_out_level_tables(Plan& plan, const std::vector<LevelTree>& trees);

// Allocate the numbers of the tables.
void allocate_tables(Plan& plan);

// Remove the walk's programs for trees that have tables.
void drop_walks(Plan& plan);

}  // namespace skshap
