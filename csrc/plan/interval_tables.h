// Tables by intervals: written by intervals/builder.cpp, read by intervals/lookup.cpp.
//
// The thresholds on the paths of a group of leaves, which may be of several trees, divide the codes of each
// column into intervals. The values of these leaves depend on a row only through the intervals of its codes.
// A table has an entry for each combination of such intervals. The index of a row's entry is a sum: each
// threshold that a code has passed adds a number, and each category adds a number of its own. See
// docs/mathematics.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/aligned.h"
#include "base/types.h"
#include "plan/index_steps.h"

namespace skshap {

struct IntervalTable {
  uint32_t columns, n_columns;  // in IntervalTables::columns
  uint32_t n_entries;
  size_t sums;     // where its entries begin in the contents: [index][row size of the window]
  size_t margins;  // and their margins: [index][output of the window]
};

// Consecutive tables that add to the same sums. Within a window, no sums are permuted.
struct TableWindow {
  size_t tables, tables_end;
  size_t places, places_end;  // in IntervalTables::places, one for each sum of a row
  size_t row_size;            // the number of sums, padded
  uint32_t first_output, n_outputs;
};

struct IntervalTables {
  std::vector<IndexStep> steps;
  std::vector<IndexColumn> columns;
  std::vector<IntervalTable> tables;
  std::vector<TableWindow> windows;
  std::vector<uint32_t> places;                        // output * used features + position in Plan::features
  std::vector<float, AlignedAllocator<float>> floats;  // the sums, in the plan's precision only
  std::vector<double, AlignedAllocator<double>> doubles;
  std::vector<double, AlignedAllocator<double>> margins;
  // The trees that the tables explain, and the largest number of quadrature nodes of these trees.
  int n_nodes = 0;
  size_t n_trees = 0, n_leaves = 0;

  bool any() const { return !tables.empty(); }
  size_t table_bytes() const { return list_bytes(floats, doubles, margins); }
  size_t bytes() const { return table_bytes() + list_bytes(steps, columns, tables, windows, places); }
};

}  // namespace skshap
