// Puts the leaves of a plan into lanes.
#pragma once

#include "plan/plan.h"

namespace skshap {

// Return whether the leaves of a plan can be in lanes. They can for path-dependent SHAP values or Banzhaf
// values, if all trees are walked, each player is tested in one column, and paths have at most
// 2 * kMaxLaneNodes features.
bool can_have_lanes(const Plan& plan);

// Compile a plan of the same values whose leaves are in lanes. If the lanes would take more than most_bytes,
// the result has no lanes, and explains nothing.
Plan make_lane_plan(const Plan& plan, size_t most_bytes);

// Likewise for values against background data: a few `rows`, with weights that add up to 1. If the leaves of
// the trees cannot be in lanes, the result has no lanes, either.
Plan make_background_lane_plan(const EnsembleView& ensemble, Precision precision, const Rows& rows,
                               const double* weights, Index index, size_t most_bytes, int64_t n_threads);

}  // namespace skshap
