// Plan -> layout of its tables: which leaves share one, where it lies, and what its index is made of.
#pragma once

#include <vector>

#include "plan/plan.h"
#include "tables/tree_groups.h"

namespace skshap {

// Positions of a batch of several trees: as many as a vector holds.
constexpr size_t kBatchPositions = 16;

// A tree whose nodes of each level all split alike, with one node of each level.
struct LevelTree {
  size_t tree;  // among those of the plan
  std::vector<int32_t> nodes;
};

// Lay out tables: everything but their numbers. Each tree of `levels`, in the order of the plan, has a single
// table, indexed by its answers on each level. The limits are for all other trees.
void lay_out_tables(Plan& plan, const std::vector<LevelTree>& levels, const TableLimits& limits);

// Allocate the numbers of the tables.
void allocate_tables(Plan& plan);

// Remove the walk's programs of trees with tables.
void drop_walks(Plan& plan);

}  // namespace skshap
