// Plan -> layout of its tables: which leaves share one, where it lies, and what its index is made of.
#pragma once

#include <vector>

#include "plan.h"
#include "tree_groups.h"

namespace skshap {

// Positions of a batch of several trees: as many as a vector holds.
constexpr size_t kBatchPositions = 16;

// A tree whose nodes on each level all ask the same: one node of each level.
struct LevelTree {
  size_t tree;  // among those of the plan
  std::vector<int32_t> nodes;
};

// Lays out tables: everything but what is in them. Those of `levels`, in the order of the plan, have only one
// each, with an index of the answers on each level. The limits are for all other trees.
void lay_out_tables(Plan& plan, const std::vector<LevelTree>& levels, const TableLimits& limits);

// Makes room for what is in the tables.
void allocate_tables(Plan& plan);

// Takes the walk's programs of trees with tables away.
void drop_walks(Plan& plan);

}  // namespace skshap
