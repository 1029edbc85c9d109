// SHAP values and Banzhaf values of trees with linear leaves, against background data.
//
// A leaf may be a linear function of columns of X instead of a number. Let x be a row and b a background row.
// The coalitions that reach the leaf are those with all features of its path that only x satisfies, and with
// no feature that only b satisfies. The coalitions that reach a term of the function meet one more condition.
// A leaf's contributions depend on b through its pattern, which says which features b satisfies and which
// values are missing. They are linear in the values of b in the terms' columns. So the background rows of
// each pattern are summed up, once for all rows. The contributions are linear in the values of x, too. So
// their coefficients are found once for all rows of a tile with the same pattern. See docs/mathematics.md.
#pragma once

#include <functional>
#include <vector>

#include "background/linear_patterns.h"
#include "plan/plan.h"

namespace skshap {

// The terms of the leaves of an ensemble, borrowed from NumPy. skshapgpu/adapters/ensemble.py documents them.
struct LinearLeavesView {
  const int64_t* offsets;  // or null: no leaf is linear
  const int32_t* feature;
  const double* coefficient;
  const double* intercept;
};

struct LinearPlan {
  Plan plan;  // columns, features, tests and constants only
  LinearModel model;
  std::vector<LinearTree> trees;   // by output
  std::vector<size_t> first_tree;  // of each output, and the end
  size_t most_inner;
  LinearBackground background;
  std::vector<PatternSums> sums;  // by tree; without leaves if memory ran out: summed up again for each tile
  size_t summing_bytes;           // the most bytes that summing up takes for a tree
  // A bound on the magnitude of a leaf less the expected value of its tree, summed over the trees:
  // reach[output] plus, for each column, the column's reach times the largest magnitude of the row and the
  // background.
  std::vector<double> reach;         // [output]
  std::vector<double> column_reach;  // [output][column]

  size_t sum_bytes() const;
  size_t bytes() const;
};

// Compile a plan against the background rows `rows`, whose weights add up to 1. Sums of patterns take at most
// sum_bytes. Throw std::invalid_argument if a path and the columns of its leaf together have more than 64
// different features.
LinearPlan make_linear_plan(const EnsembleView& ensemble, const LinearLeavesView& leaves, Precision precision,
                            Index index, const Rows& rows, const double* weights, size_t sum_bytes,
                            int64_t n_threads);

// Explain rows like explain() of plan/plan.h. If `reach` is not null, it receives the bound on the magnitude
// of leaves, for each row and output.
bool explain_linear(const LinearPlan& plan, const Rows& rows, const Result& result, double* reach,
                    int n_threads, const std::function<bool()>& interrupted);

// Return the bytes that one thread of explain_linear() allocates.
size_t scratch_bytes(const LinearPlan& plan);

}  // namespace skshap
