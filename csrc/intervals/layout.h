// Chooses the trees that tables by intervals explain, and lays out the tables.
#pragma once

#include <limits>
#include <vector>

#include "intervals/packing.h"
#include "plan/merged_trees.h"
#include "tables/tree_costs.h"

namespace skshap {

// Seconds, from the cost model (skshapgpu/_engine/costs/trees.py).
struct IntervalPrices {
  double leaf, leaf_node;  // of a walk, for each row and leaf; and for each of a leaf's quadrature nodes
  double table;            // for each row, in one of the tables that trees have against background data
  double lookup;           // for each row, in a table that fits the cache nearest to the core
  double doubling;         // added for each doubling of a table beyond small_bytes
  double small_bytes;
  double line_bytes;  // a lookup of this many bytes takes the time above
  // The time to build a table, for each entry of a unit: by inner node on the unit's paths, or by background
  // table.
  double built_leaf, built_table;
  double unit_node;  // to build a table: for each inner node on the paths of its units
  double entry;      // for each entry that is written, or to which other entries are added
  double byte;       // and for each byte of the table, whose memory is new
};

struct IntervalLimits {
  uint32_t most_entries;
  double least_leaves;                                          // of a unit, on average in each tree
  double n_rows;                                                // that the tables are expected to explain
  double most_bytes = std::numeric_limits<double>::infinity();  // if tables need more, there may be none
  bool on_gpu = false;                                          // within the limits of a GPU
};

// The costs of the tables. `groups` has all trees.
struct IntervalCosts {
  std::vector<TreeGroup> groups;
  TableCost tables;           // the group with tables by intervals
  double lookup_seconds = 0;  // for each row, also in background tables of trees without tables by intervals
  double build_seconds = 0;
};

struct IntervalLayout {
  const Plan* plan;  // whose trees the units are of
  Units units;
  std::vector<PackedTable> tables;
  std::vector<PackedWindow> windows;
  std::vector<MergedTrees> merged;  // of trees without tables
  IntervalCosts costs;
  bool on_gpu = false;
};

// Return the number of sums of a row of a window, given the number without padding.
size_t padded_sums(size_t n_sums);

// Lay out tables for a plan for path-dependent values, or for a plan with background data. A tree gets no
// tables if walking it, or looking up its background tables, takes less time. Trees without tables are merged
// if this saves time.
IntervalLayout lay_out_intervals(const Plan& plan, const IntervalPrices& prices,
                                 const IntervalLimits& limits);

}  // namespace skshap
