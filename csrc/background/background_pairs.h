// Banzhaf values, and interactions of pairs of features, against background data.
//
// As SHAP values against background data they depend on a row by its decisions on a leaf's path only, but
// tables of all pairs would be too large to keep: they are made tree by tree for a tile of rows, from how
// much weight of the background has which pattern. See docs/how_it_works.md.
#pragma once

#include <functional>
#include <vector>

#include "background/background_counts.h"
#include "plan/plan.h"
#include "rows/coding.h"

namespace skshap {

struct BackgroundPairsPlan {
  Plan plan;              // its walks are dropped, slots and pairs of its chunks ascend; no base value
  uint32_t longest_path;  // features on it
  CodeTile background;
  std::vector<double> weights;
  std::vector<PatternCounts> counts;  // by tree, empty where they found no room: those are counted anew
  size_t counting_bytes;              // what counting takes for a tree

  size_t count_bytes() const;
  size_t bytes() const;
};

// `rows` are the background, with weights that add up to 1. Of order 1 it has values only, of order 2 also
// pairs. Counts take at most count_bytes. Throws std::invalid_argument as make_plan does, and if a path has
// more than 64 different features.
BackgroundPairsPlan make_background_pairs_plan(const EnsembleView& ensemble, Precision precision,
                                               const Rows& rows, const double* weights, int order,
                                               Index index, size_t count_bytes, int64_t n_threads);

// As explain() of plan.h.
bool explain_background_pairs(const BackgroundPairsPlan& plan, const Rows& rows, const Result& result,
                              int n_threads, const std::function<bool()>& interrupted);

// Bytes that one thread of explain_background_pairs() allocates.
size_t scratch_bytes(const BackgroundPairsPlan& plan);

}  // namespace skshap
