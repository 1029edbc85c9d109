// Interactions of pairs of features, against background data.
//
// Like values against background data, they depend on a row only through its decisions on paths. But
// tables of all pairs would be too large to keep. So the tables are made tree by tree for a tile of rows,
// from the weights of the patterns in the background data. See docs/mathematics.md.
#pragma once

#include <functional>
#include <vector>

#include "background/background_counts.h"
#include "plan/plan.h"
#include "rows/coding.h"

namespace skshap {

struct BackgroundPairsPlan {
  Plan plan;              // without walks or base value; slots and pairs of its chunks ascend
  uint32_t longest_path;  // the most features on a path
  size_t n_background;    // rows
  CodeTile background;
  std::vector<double> weights;
  std::vector<PatternCounts> counts;  // by tree; empty if memory ran out: counted again for each tile
  size_t counting_bytes;              // the most bytes that counting takes for a tree

  size_t count_bytes() const;
  size_t bytes() const;
};

// Compile a plan for pairs, and the values of features, against the background rows `rows`, whose weights add
// up to 1. Counts take at most count_bytes. Throw std::invalid_argument as make_plan does, and also if a path
// has more than 64 different features.
BackgroundPairsPlan make_background_pairs_plan(const EnsembleView& ensemble, Precision precision,
                                               const Rows& rows, const double* weights, Index index,
                                               size_t count_bytes, int64_t n_threads);

// Explain rows like explain() of plan/plan.h.
bool explain_background_pairs(const BackgroundPairsPlan& plan, const Rows& rows, const Result& result,
                              int n_threads, const std::function<bool()>& interrupted);

// Return the bytes that one thread of explain_background_pairs() allocates.
size_t scratch_bytes(const BackgroundPairsPlan& plan);

}  // namespace skshap
